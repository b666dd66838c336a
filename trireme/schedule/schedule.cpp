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
  switch (kind) {
    case ActionKind::load_batch:
      return "LoadBatch";
    case ActionKind::unshard:
      return "Unshard";
    case ActionKind::forward:
      return "Forward";
    case ActionKind::recompute:
      return "Recompute";
    case ActionKind::backward:
      return "Backward";
    case ActionKind::reduce_gradient:
      return "ReduceGradient";
    case ActionKind::gather_loss:
      return "GatherLoss";
    case ActionKind::gather_norm:
      return "GatherNorm";
    case ActionKind::clip:
      return "Clip";
    case ActionKind::step:
      return "Step";
  }
  return "?";
}

const char* name_of(Queue queue) {
  switch (queue) {
    case Queue::compute:
      return "compute";
    case Queue::gather:
      return "gather";
    case Queue::reduce:
      return "reduce";
  }
  return "?";
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
  }
  return "?";
}

std::string describe(const Schedule& s, const Action& a) {
  std::string owner;
  switch (a.kind) {
    case ActionKind::forward:
    case ActionKind::recompute:
    case ActionKind::backward:
      owner = s.unit_names[a.owner];
      break;
    case ActionKind::unshard:
    case ActionKind::reduce_gradient:
    case ActionKind::step:
      owner = s.group_names[a.owner];
      break;
    default:
      break;
  }
  std::string arguments = owner;
  if (a.micro_batch >= 0) arguments += fmt::format("{}mb {}", owner.empty() ? "" : ", ", a.micro_batch);
  return arguments.empty() ? std::string(name_of(a.kind)) : fmt::format("{}({})", name_of(a.kind), arguments);
}

}  // namespace trireme::schedule
