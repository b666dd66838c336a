#include "trireme/schedule/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "trireme/schedule/placement.h"

namespace trireme::schedule {

int Schedule::find(ValueKind kind, int owner, int micro_batch, int instance) const {
  for (size_t i = 0; i < values.size(); ++i) {
    const Value& v = values[i];
    if (v.home < 0 && v.kind == kind && v.owner == owner && v.micro_batch == micro_batch && v.instance == instance)
      return static_cast<int>(i);
  }
  return -1;
}

ValueIndex::ValueIndex(const Schedule& schedule) {
  for (size_t i = 0; i < schedule.values.size(); ++i) add(schedule.values[i], static_cast<int>(i));
}

void ValueIndex::add(const Value& v, int index) {
  if (v.home < 0) places_.try_emplace({v.kind, v.owner, v.micro_batch, v.instance}, index);
}

int ValueIndex::find(ValueKind kind, int owner, int micro_batch, int instance) const {
  const auto place = places_.find({kind, owner, micro_batch, instance});
  return place == places_.end() ? -1 : place->second;
}

std::string name_of(const Queue& queue) {
  std::string name(name_of(queue.kind));
  if (is_transfer(queue.kind)) name += queue.lane == kDiskLane ? " disk" : " host";
  if (queue.peer >= 0) name += fmt::format("{}{}", queue.kind == QueueKind::send ? ">" : "<", queue.peer);
  return name;
}

const char* name_of(Cause cause) {
  static constexpr const char* kNames[] = {
      "weights",         "optimizer moments",  "gradients (shard)",       "unsharded parameters",
      "gradient slots",  "saved activations",  "one unit's work, logits", "batches and messages",
      "copy for saving", "cache of generation"};
  static_assert(std::size(kNames) == kNumCauses);
  return kNames[static_cast<size_t>(cause)];
}

std::string describe(const Schedule& s, const Action& a) {
  if (is_transfer(a.kind)) return fmt::format("{}({})", name_of(a.kind), s.values[a.owner].label);
  const auto& names = traits_of(a.kind).owner == Owner::unit ? s.unit_names : s.group_names;
  const std::string owner = a.owner < 0 ? "" : names[a.owner];
  std::string arguments = owner;
  if (a.micro_batch >= 0) arguments += fmt::format("{}mb {}", owner.empty() ? "" : ", ", a.micro_batch);
  if (a.part > 0) arguments += fmt::format(", tile {}", a.part);
  if (is_message(a.kind) && a.queue.lane == kGradients) arguments = "gradient " + arguments;
  return arguments.empty() ? std::string(name_of(a.kind)) : fmt::format("{}({})", name_of(a.kind), arguments);
}

namespace {

// The values that an action reads, or writes; tensors of one unit and micro-batch as one word.
std::string values_of(const Schedule& s, const Action& a, bool writes) {
  std::vector<std::string> words;
  for (const Use& u : a.uses) {
    const bool is_write = u.access == Access::write || u.access == Access::accumulate;
    const ValueKind kind = s.values[u.value].kind;
    if (is_write != writes || kind == ValueKind::work || kind == ValueKind::step_work) continue;
    const std::string& label = s.values[u.value].label;
    const std::string word =
        label.substr(0, label.rfind(")") + 1).empty() ? label : label.substr(0, label.rfind(")") + 1);
    if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  }
  return fmt::format("{}", fmt::join(words, " "));
}

}  // namespace

std::string render_text(const Schedule& s) {
  const auto live = live_bytes(s);
  std::string out =
      fmt::format("{:>5}  {:<10} {:<36} {:>9}  {}\n", "#", "queue", "action", "live MiB", "reads -> writes");
  for (size_t i = 0; i < s.actions.size(); ++i) {
    const Action& a = s.actions[i];
    std::string name = describe(s, a);
    if (a.completes_at >= 0) name += fmt::format(" until #{}", a.completes_at);
    out += fmt::format("{:>5}  {:<10} {:<36} {:>9.1f}  {} -> {}\n", i, name_of(a.queue), name,
                       double(own_bytes(live[i])) / (1 << 20), values_of(s, a, false), values_of(s, a, true));
  }
  return out;
}

}  // namespace trireme::schedule
