// What an action is about: its unit or group, micro-batch and queue are ones its kind can have, and the values it
// uses are its own.
#include <fmt/format.h>

#include <array>
#include <map>
#include <set>
#include <span>

#include "trireme/schedule/validate_rules.h"

namespace trireme::schedule::rules {
namespace {

enum class Of { unit, group, none };  ///< what Action::owner counts

Of owner_of(ActionKind kind) {
  if (is_computation(kind)) return Of::unit;
  switch (kind) {
    case ActionKind::send:
    case ActionKind::receive:
      return Of::unit;
    case ActionKind::load_batch:
    case ActionKind::gather_loss:
    case ActionKind::gather_norm:
    case ActionKind::clip:
      return Of::none;
    default:
      return Of::group;
  }
}

QueueKind queue_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::unshard:
      return QueueKind::gather;
    case ActionKind::send:
      return QueueKind::send;
    case ActionKind::receive:
      return QueueKind::receive;
    case ActionKind::reduce_gradient:
    case ActionKind::all_reduce_gradient:
      return QueueKind::reduce;
    case ActionKind::gather_replicas:
    case ActionKind::reduce_replicas:
      return QueueKind::replicas;
    case ActionKind::reduce_tied:
      return QueueKind::tied;
    case ActionKind::gather_loss:
      return QueueKind::loss;
    case ActionKind::gather_norm:
      return QueueKind::norm;
    default:
      return QueueKind::compute;
  }
}

bool has_micro_batch(ActionKind kind) {
  return is_computation(kind) || kind == ActionKind::load_batch || kind == ActionKind::send ||
         kind == ActionKind::receive;
}
// Reductions have one unless the step's sum is reduced; an unshard says which reader it is for.
bool may_have_micro_batch(ActionKind kind) {
  return has_micro_batch(kind) || is_reduction(kind) || kind == ActionKind::unshard;
}

std::string broken_target(const Schedule& s, const Action& a) {
  const Of of = owner_of(a.kind);
  const size_t count = of == Of::unit ? s.unit_names.size() : of == Of::group ? s.group_names.size() : 0;
  if (of == Of::none && a.owner != -1) return "belongs to no unit or group";
  if (of != Of::none && (a.owner < 0 || a.owner >= static_cast<int>(count)))
    return fmt::format("is of {} {}, and there are {}", of == Of::unit ? "unit" : "group", a.owner, count);
  if (has_micro_batch(a.kind) ? a.micro_batch < 0 : a.micro_batch != -1 && !may_have_micro_batch(a.kind))
    return fmt::format("has micro-batch {}", a.micro_batch);
  if (a.queue.kind != queue_of(a.kind)) return fmt::format("stands in queue {}", name_of(a.queue));
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
  slot,   ///< of a group of the unit, of the micro-batch
  group,  ///< the group's, of the step
  any,    ///< of any group, of the step
  step,   ///< the step's
};

struct Row {
  ValueKind value;
  Place place;
  std::array<bool, 4> access;  ///< read, write, accumulate, consume
};

constexpr std::array<bool, 4> kRead{true, false, false, false}, kWrite{false, true, false, false},
    kAdd{false, false, true, false}, kConsume{false, false, false, true}, kMake{false, true, true, false},
    kTake{true, false, false, true}, kReadOrMake{true, true, false, false}, kKeep{false, false, true, true};

using VK = ValueKind;
using P = Place;

std::span<const Row> rows_of(const Action& a) {
  static constexpr Row kLoad[] = {
      {VK::tokens, P::batch, kWrite}, {VK::targets, P::batch, kWrite}, {VK::documents, P::batch, kWrite}};
  static constexpr Row kUnshard[] = {{VK::weights, P::group, kAdd},
                                     {VK::master, P::group, kRead},
                                     {VK::compute_shard, P::group, kRead},
                                     {VK::parameters, P::group, kWrite}};
  static constexpr Row kForward[] = {{VK::parameters, P::any, kRead}, {VK::weights, P::any, kRead},
                                     {VK::boundary, P::input, kRead}, {VK::boundary, P::own, kWrite},
                                     {VK::tokens, P::batch, kRead},   {VK::documents, P::batch, kRead},
                                     {VK::targets, P::batch, kRead},  {VK::loss, P::step, kAdd},
                                     {VK::saved, P::own, kWrite},     {VK::work, P::own, kWrite}};
  static constexpr Row kRecompute[] = {{VK::parameters, P::any, kRead},  {VK::weights, P::any, kRead},
                                       {VK::boundary, P::input, kRead},  {VK::tokens, P::batch, kRead},
                                       {VK::documents, P::batch, kRead}, {VK::saved, P::own, kReadOrMake},
                                       {VK::work, P::own, kWrite}};
  static constexpr Row kBackward[] = {{VK::parameters, P::any, kRead},
                                      {VK::weights, P::any, kRead},
                                      {VK::boundary, P::input, kRead},
                                      {VK::tokens, P::batch, kRead},
                                      {VK::documents, P::batch, kRead},
                                      {VK::targets, P::batch, kRead},
                                      {VK::loss, P::step, kAdd},
                                      {VK::saved, P::own, kConsume},
                                      {VK::work, P::own, kWrite},
                                      {VK::boundary_gradient, P::own, kTake},
                                      {VK::boundary_gradient, P::input, kWrite},
                                      {VK::gradient_slot, P::slot, kMake},
                                      {VK::local_gradient, P::any, kMake},
                                      {VK::gradient, P::any, kMake}};
  static constexpr Row kInput[] = {{VK::parameters, P::any, kRead},
                                   {VK::weights, P::any, kRead},
                                   {VK::boundary, P::input, kRead},
                                   {VK::tokens, P::batch, kRead},
                                   {VK::documents, P::batch, kRead},
                                   {VK::targets, P::batch, kRead},
                                   {VK::loss, P::step, kAdd},
                                   {VK::saved, P::own, kKeep},
                                   {VK::work, P::own, kWrite},
                                   {VK::deferred, P::own, kWrite},
                                   {VK::boundary_gradient, P::own, kTake},
                                   {VK::boundary_gradient, P::input, kWrite}};
  static constexpr Row kWeight[] = {{VK::saved, P::own, kConsume},       {VK::work, P::own, kWrite},
                                    {VK::deferred, P::own, kConsume},    {VK::gradient_slot, P::slot, kMake},
                                    {VK::local_gradient, P::any, kMake}, {VK::gradient, P::any, kMake}};
  static constexpr Row kSend[] = {{VK::boundary, P::own, kRead}}, kReceive[] = {{VK::boundary, P::own, kWrite}},
                       kSendBack[] = {{VK::boundary_gradient, P::own, kRead}},
                       kReceiveBack[] = {{VK::boundary_gradient, P::own, kWrite}};
  static constexpr Row kReduce[] = {
      {VK::gradient_slot, P::own, kRead}, {VK::local_gradient, P::group, kRead}, {VK::gradient, P::group, kMake}};
  static constexpr Row kExchange[] = {{VK::gradient, P::group, kAdd}};
  static constexpr Row kLoss[] = {{VK::loss, P::step, kRead}, {VK::loss_all, P::step, kWrite}};
  static constexpr Row kNorm[] = {
      {VK::gradient, P::any, kRead}, {VK::norm_partials, P::step, kWrite}, {VK::norm_all, P::step, kWrite}};
  static constexpr Row kClip[] = {{VK::norm_all, P::step, kRead}};
  static constexpr Row kStep[] = {{VK::gradient, P::group, kRead},      {VK::master, P::group, kAdd},
                                  {kOptimizerState[0], P::group, kAdd}, {kOptimizerState[1], P::group, kAdd},
                                  {VK::weights, P::group, kAdd},        {VK::compute_shard, P::group, kAdd}};
  const bool back = a.queue.lane == kGradients;
  switch (a.kind) {
    case ActionKind::load_batch:
      return kLoad;
    case ActionKind::unshard:
      return kUnshard;
    case ActionKind::forward:
      return kForward;
    case ActionKind::recompute:
      return kRecompute;
    case ActionKind::backward:
      return kBackward;
    case ActionKind::backward_input:
      return kInput;
    case ActionKind::backward_weight:
      return kWeight;
    case ActionKind::send:
      return back ? kSendBack : kSend;
    case ActionKind::receive:
      return back ? kReceiveBack : kReceive;
    case ActionKind::reduce_gradient:
    case ActionKind::all_reduce_gradient:
      return kReduce;
    case ActionKind::gather_replicas:
    case ActionKind::reduce_replicas:
    case ActionKind::reduce_tied:
      return kExchange;
    case ActionKind::gather_loss:
      return kLoss;
    case ActionKind::gather_norm:
      return kNorm;
    case ActionKind::clip:
      return kClip;
    case ActionKind::step:
      return kStep;
  }
  return {};
}

bool lies_at(const Value& v, const Action& a, Place place) {
  switch (place) {
    case Place::own:
      return v.owner == a.owner && v.micro_batch == a.micro_batch;
    case Place::input:
      return v.owner == a.owner - 1 && v.owner >= 0 && v.micro_batch == a.micro_batch;
    case Place::batch:
      return v.owner == -1 && v.micro_batch == a.micro_batch;
    case Place::slot:
      return v.micro_batch == a.micro_batch;
    case Place::group:
      return v.owner == a.owner && v.micro_batch == -1;
    case Place::any:
      return v.micro_batch == -1;
    case Place::step:
      return v.owner == -1 && v.micro_batch == -1;
  }
  return false;
}

bool may_use(const Action& a, const Value& v, Access access) {
  for (const Row& row : rows_of(a))
    if (row.value == v.kind && row.access[static_cast<int>(access)] && lies_at(v, a, row.place)) return true;
  // The sum of a rank is reduced where it lies.
  return a.kind == ActionKind::all_reduce_gradient && v.kind == VK::gradient && v.owner == a.owner;
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
  std::map<int, std::set<int>> groups;                    // unit -> groups that its passes read
  std::map<int, int> first;
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
    const auto [known, fresh] = groups.try_emplace(a.owner, read);
    if (fresh)
      first[a.owner] = i;
    else if (known->second != read)
      f.at(i, fmt::format("reads the weights of other groups than {}", f.name(first[a.owner])));
  }
}

}  // namespace trireme::schedule::rules
