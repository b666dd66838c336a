#include "trireme/schedule/schedule.h"

#include <fmt/format.h>

namespace trireme::schedule {

int Schedule::find(ValueKind kind, int owner, int micro_batch, int instance) const {
  for (size_t i = 0; i < values.size(); ++i) {
    const Value& v = values[i];
    if (v.kind == kind && v.owner == owner && v.micro_batch == micro_batch && v.instance == instance)
      return static_cast<int>(i);
  }
  return -1;
}

const char* name_of(ActionKind kind) {
  static constexpr const char* kNames[] = {"LoadBatch",
                                           "Unshard",
                                           "Forward",
                                           "Recompute",
                                           "Backward",
                                           "BackwardInput",
                                           "BackwardWeight",
                                           "Send",
                                           "Receive",
                                           "ReduceGradient",
                                           "AllReduceGradient",
                                           "GatherReplicas",
                                           "ReduceReplicas",
                                           "ReduceTied",
                                           "GatherLoss",
                                           "GatherNorm",
                                           "Clip",
                                           "Step"};
  return kNames[static_cast<int>(kind)];
}

bool is_computation(ActionKind kind) { return kind >= ActionKind::forward && kind <= ActionKind::backward_weight; }

bool is_message(ActionKind kind) { return kind == ActionKind::send || kind == ActionKind::receive; }

bool writes_gradient(ActionKind kind) { return kind == ActionKind::backward || kind == ActionKind::backward_weight; }

std::string name_of(const Queue& queue) {
  static constexpr const char* kNames[] = {"compute", "gather", "reduce", "replicas", "tied",
                                           "loss",    "norm",   "send",   "receive"};
  std::string name = kNames[static_cast<int>(queue.kind)];
  if (queue.peer >= 0) name += fmt::format("{}{}", queue.kind == QueueKind::send ? ">" : "<", queue.peer);
  return name;
}

const char* name_of(Cause cause) {
  switch (cause) {
    case Cause::weights:
      return "weights";
    case Cause::optimizer:
      return "optimizer moments";
    case Cause::gradients:
      return "gradients (shard)";
    case Cause::unsharded:
      return "unsharded parameters";
    case Cause::slots:
      return "gradient slots";
    case Cause::saved:
      return "saved activations";
    case Cause::work:
      return "one unit's work, logits";
    case Cause::messages:
      return "batches and messages";
    case Cause::save_copy:
      return "copy for saving";
  }
  return "?";
}

const char* name_of(Memory memory) {
  switch (memory) {
    case Memory::device:
      return "private";
    case Memory::symmetric:
      return "symmetric";
    case Memory::host_shared:
      return "host-shared";
    case Memory::host_reduced:
      return "host-reduced";
  }
  return "?";
}

std::string describe(const Schedule& s, const Action& a) {
  const bool of_unit = is_computation(a.kind) || is_message(a.kind);
  const std::string owner = a.owner < 0 ? "" : of_unit ? s.unit_names[a.owner] : s.group_names[a.owner];
  std::string arguments = owner;
  if (a.micro_batch >= 0) arguments += fmt::format("{}mb {}", owner.empty() ? "" : ", ", a.micro_batch);
  if (a.queue.lane == kGradients) arguments = "gradient " + arguments;
  return arguments.empty() ? std::string(name_of(a.kind)) : fmt::format("{}({})", name_of(a.kind), arguments);
}

}  // namespace trireme::schedule
