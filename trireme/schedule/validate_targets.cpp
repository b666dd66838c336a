// Each action has a unit or group, a micro-batch and a queue that its kind can have, and uses its own values.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "trireme/schedule/validate_rules.h"

namespace trireme::schedule::rules {
namespace {

using K = ActionKind;
using Q = QueueKind;

enum class Of { unit, group, value, none };  ///< what Action::owner counts
enum class Has { always, sometimes, never };

/// What an action of a kind is about. The rows do not come from action_kinds.cpp, so that a wrong row there is found.
struct Target {
  Of of;
  Q queue;
  Has micro_batch;
};

Target target_of(K kind) {
  switch (kind) {
    case K::load_batch:
      return {Of::none, Q::compute, Has::always};
    case K::unshard:  // its micro-batch is that of the reader it is for
      return {Of::group, Q::gather, Has::sometimes};
    case K::send:
      return {Of::unit, Q::send, Has::always};
    case K::receive:
      return {Of::unit, Q::receive, Has::always};
    case K::reduce_gradient:
    case K::all_reduce_gradient:  // with local accumulation: the sum of the step's micro-batches
      return {Of::group, Q::reduce, Has::sometimes};
    case K::gather_replicas:
    case K::reduce_replicas:
      return {Of::group, Q::replicas, Has::never};
    case K::reduce_tied:
      return {Of::group, Q::tied, Has::never};
    case K::gather_loss:
      return {Of::none, Q::loss, Has::never};
    case K::gather_norm:
      return {Of::none, Q::norm, Has::never};
    case K::clip:
      return {Of::none, Q::compute, Has::never};
    case K::fetch:
      return {Of::value, Q::fetch, Has::never};
    case K::evict:
      return {Of::value, Q::evict, Has::never};
    case K::sum_squares:
    case K::step:
      return {Of::group, Q::compute, Has::never};
    default:
      return {Of::unit, Q::compute, Has::always};
  }
}

std::string broken_target(const Schedule& s, const Action& a) {
  const auto [of, queue, micro_batch] = target_of(a.kind);
  const size_t count = of == Of::unit    ? s.unit_names.size()
                       : of == Of::group ? s.group_names.size()
                       : of == Of::value ? s.values.size()
                                         : 0;
  if (of == Of::none && a.owner != -1) return "belongs to no unit or group";
  if (of != Of::none && (a.owner < 0 || a.owner >= static_cast<int>(count)))
    return fmt::format("is of {} {}, and there are {}",
                       of == Of::unit    ? "unit"
                       : of == Of::group ? "group"
                                         : "value",
                       a.owner, count);
  if (micro_batch == Has::always ? a.micro_batch < 0 : a.micro_batch != -1 && micro_batch == Has::never)
    return fmt::format("has micro-batch {}", a.micro_batch);
  if (a.queue.kind != queue) return fmt::format("stands in queue {}", name_of(a.queue));
  const bool message = is_message(a.kind);
  if (message != (a.queue.peer >= 0)) return "has a peer exactly when it is a message";
  for (const Use& u : a.uses)
    if (u.value < 0 || u.value >= static_cast<int>(s.values.size()))
      return fmt::format("uses value {} of {}", u.value, s.values.size());
  return "";
}

/// How a value's owner and micro-batch follow from the action's.
enum class Place {
  own,    ///< the unit's or group's, of the micro-batch
  input,  ///< of the unit before, of the micro-batch
  batch,  ///< of no unit, of the micro-batch
  slot,   ///< of any group, of the micro-batch
  group,  ///< the group's, of the step
  any,    ///< of any group, of the step
  step,   ///< of no group, of the step
};

bool lies_at(const Value& v, const Action& a, Place place) {
  const bool of_micro_batch = place <= Place::slot, any_owner = place == Place::slot || place == Place::any;
  const int owner = place == Place::own || place == Place::group ? a.owner : place == Place::input ? a.owner - 1 : -1;
  return v.micro_batch == (of_micro_batch ? a.micro_batch : -1) && (any_owner || v.owner == owner) &&
         (place != Place::input || owner >= 0);
}

constexpr unsigned bit(K kind) { return 1u << static_cast<unsigned>(kind); }
constexpr unsigned bit(Access access) { return 1u << static_cast<unsigned>(access); }

/// Actions of `kinds` may use values of a kind and place in these ways.
struct Row {
  unsigned kinds;
  ValueKind value;
  Place place;
  unsigned access;
};

using VK = ValueKind;
using P = Place;

constexpr unsigned kForward = bit(K::forward), kRecompute = bit(K::recompute), kWhole = bit(K::backward),
                   kInput = bit(K::backward_input), kWeight = bit(K::backward_weight), kBackward = kWhole | kInput,
                   kReads = kForward | kRecompute | kBackward, kWrites = kWhole | kWeight, kSend = bit(K::send),
                   kReceive = bit(K::receive), kFold = bit(K::reduce_gradient) | bit(K::all_reduce_gradient),
                   kExchange = bit(K::gather_replicas) | bit(K::reduce_replicas) | bit(K::reduce_tied),
                   kRead = bit(Access::read), kWrite = bit(Access::write), kAdd = bit(Access::accumulate),
                   kConsume = bit(Access::consume);

// clang-format off
constexpr Row kRows[] = {
  {bit(K::load_batch),   VK::tokens,            P::batch, kWrite},
  {bit(K::load_batch),   VK::targets,           P::batch, kWrite},
  {bit(K::load_batch),   VK::documents,         P::batch, kWrite},
  {bit(K::unshard),      VK::weights,           P::group, kAdd},
  {bit(K::unshard),      VK::master,            P::group, kRead},
  {bit(K::unshard),      VK::compute_shard,     P::group, kRead},
  {bit(K::unshard),      VK::parameters,        P::group, kWrite},
  {kReads,               VK::parameters,        P::any,   kRead},
  {kReads,               VK::weights,           P::any,   kRead},
  {kReads,               VK::tokens,            P::batch, kRead},
  {kReads,               VK::documents,         P::batch, kRead},
  {kReads,               VK::boundary,          P::input, kRead},
  {kForward | kBackward, VK::targets,           P::batch, kRead},
  {kForward | kBackward, VK::loss,              P::step,  kAdd},
  {kForward | kReceive,  VK::boundary,          P::own,   kWrite},
  {kForward,             VK::cache,             P::own,   kAdd},
  {kSend,                VK::boundary,          P::own,   kRead},
  {kSend,                VK::boundary_gradient, P::own,   kRead},
  {kReceive,             VK::boundary_gradient, P::own,   kWrite},
  {kBackward,            VK::boundary_gradient, P::own,   kRead | kConsume},
  {kBackward,            VK::boundary_gradient, P::input, kWrite},
  {kForward,             VK::saved,             P::own,   kWrite},
  {kRecompute,           VK::saved,             P::own,   kRead | kWrite},
  {kInput,               VK::saved,             P::own,   kAdd | kConsume},
  {kWrites,              VK::saved,             P::own,   kConsume},
  {kReads | kWeight,     VK::work,              P::own,   kWrite},
  {kInput,               VK::deferred,          P::own,   kWrite},
  {kWeight,              VK::deferred,          P::own,   kConsume},
  {kWrites,              VK::gradient_slot,     P::slot,  kWrite | kAdd},
  {kWrites,              VK::local_gradient,    P::any,   kWrite | kAdd},
  {kWrites,              VK::gradient,          P::any,   kWrite | kAdd},
  {kFold,                VK::gradient_slot,     P::own,   kRead},
  {kFold,                VK::local_gradient,    P::group, kRead},
  {kFold,                VK::gradient,          P::group, kWrite | kAdd},
  {kExchange,            VK::gradient,          P::group, kAdd},
  {bit(K::gather_loss),  VK::loss,              P::step,  kRead},
  {bit(K::gather_loss),  VK::loss_all,          P::step,  kWrite},
  {bit(K::sum_squares),  VK::gradient,          P::group, kRead},
  {bit(K::sum_squares),  VK::norm_partials,     P::step,  kWrite},
  {bit(K::gather_norm),  VK::gradient,          P::any,   kRead},
  {bit(K::gather_norm),  VK::norm_partials,     P::step,  kWrite},
  {bit(K::gather_norm),  VK::norm_all,          P::step,  kWrite},
  {bit(K::clip),         VK::norm_all,          P::step,  kRead},
  {bit(K::step),         VK::gradient,          P::group, kRead | kConsume},
  {bit(K::step),         VK::master,            P::group, kAdd},
  {bit(K::step),         kOptimizerState[0],    P::group, kAdd},
  {bit(K::step),         kOptimizerState[1],    P::group, kAdd},
  {bit(K::step),         VK::compensation,      P::group, kAdd},
  {bit(K::step),         VK::weights,           P::group, kAdd | kWrite},
  {bit(K::step),         VK::compute_shard,     P::group, kAdd | kWrite},
  {bit(K::step),         VK::step_work,         P::group, kWrite},
};
// clang-format on

bool may_use(const Action& a, const Value& v, Access access) {
  if (is_transfer(a.kind)) return true;  // check_offload
  // Activations and their gradients travel in lanes of their own.
  if (is_message(a.kind) && (v.kind == VK::boundary_gradient) != (a.queue.lane == kGradients)) return false;
  const bool listed = std::ranges::any_of(kRows, [&](const Row& row) {
    return (row.kinds & bit(a.kind)) != 0 && row.value == v.kind && (row.access & bit(access)) != 0 &&
           lies_at(v, a, row.place);
  });
  // A rank's own sum is reduced in place.
  return listed || (a.kind == K::all_reduce_gradient && v.kind == VK::gradient && v.owner == a.owner);
}

}  // namespace

void check_targets(const Schedule& s, Findings& f) {
  for (size_t i = 0; i < s.actions.size(); ++i) {
    const Action& a = s.actions[i];
    if (const std::string why = broken_target(s, a); !why.empty())
      f.say(fmt::format("#{} {} {}", i, name_of(a.kind), why));  // its names may be out of range too
  }
}

void check_uses(const Schedule& s, Findings& f) {
  static constexpr const char* kVerbs[] = {"reads", "writes", "adds to", "consumes"};
  // Groups that a unit's passes read, forward ones (false) and backward ones (true), and the first such pass.
  std::map<std::pair<int, bool>, std::pair<std::set<int>, int>> groups;
  for (int i = 0; i < static_cast<int>(s.actions.size()); ++i) {
    const Action& a = s.actions[i];
    std::set<int> read;
    for (const Use& u : a.uses) {
      const Value& v = s.values[u.value];
      if (!may_use(a, v, u.access))
        f.at(i, fmt::format("{} {}, which is not its own", kVerbs[static_cast<int>(u.access)], v.label));
      if (v.kind == VK::parameters || v.kind == VK::weights) read.insert(v.owner);
    }
    if (!is_computation(a.kind) || read.empty()) continue;
    const bool backward = a.kind == K::backward || a.kind == K::backward_input;
    const auto& [known, known_at] = groups.try_emplace({a.owner, backward}, read, i).first->second;
    // A unit need not read all its groups in backward (UnitDeclaration::forward_groups).
    const auto forward = groups.find({a.owner, false});
    if (known != read)
      f.at(i, fmt::format("reads the weights of other groups than {}", f.name(known_at)));
    else if (forward != groups.end() && !std::ranges::includes(forward->second.first, read))
      f.at(i, fmt::format("reads the weights of other groups than {}", f.name(forward->second.second)));
  }
}

}  // namespace trireme::schedule::rules
