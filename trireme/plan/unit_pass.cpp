#include "trireme/plan/unit_pass.h"

namespace trireme::plan {

using schedule::ActionKind;

const model::Slots& work_of(const model::UnitValues& v, ActionKind kind) {
  return kind == ActionKind::backward          ? v.backward_work
         : kind == ActionKind::backward_input  ? v.input_work
         : kind == ActionKind::backward_weight ? v.weight_work
                                               : v.forward_work;
}

const std::vector<model::TrafficRow>& rows_of(const model::UnitTraffic& t, ActionKind kind) {
  return kind == ActionKind::backward          ? t.backward
         : kind == ActionKind::backward_input  ? t.backward_input
         : kind == ActionKind::backward_weight ? t.backward_weight
         : kind == ActionKind::recompute       ? t.recompute
                                               : t.forward;
}

void run_pass(const model::Unit& unit, ActionKind kind, model::UnitTensors& t, const std::vector<int>& recomputed) {
  switch (kind) {
    case ActionKind::forward:
      return unit.forward(t);
    case ActionKind::recompute:
      return unit.recompute(t, recomputed);
    case ActionKind::backward:
      return unit.backward(t);
    case ActionKind::backward_input:
      return unit.backward_input(t);
    default:
      return unit.backward_weight(t);
  }
}

}  // namespace trireme::plan
