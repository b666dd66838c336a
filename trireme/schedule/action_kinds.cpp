#include "trireme/schedule/action_kinds.h"

#include <cstddef>
#include <iterator>

namespace trireme::schedule {
namespace {

using K = ActionKind;
using Q = QueueKind;
using P = Paint;
using A = base::Activity;

// clang-format off
constexpr ActionTraits kTable[] = {
  // kind                  name                 owner         queue        paint         activity          gradient
  {K::load_batch,          "LoadBatch",         Owner::step,  Q::compute,  P::load,      A::data},
  {K::unshard,             "Unshard",           Owner::group, Q::gather,   P::gather,    A::communication},
  {K::forward,             "Forward",           Owner::unit,  Q::compute,  P::forward,   A::elementwise},
  {K::recompute,           "Recompute",         Owner::unit,  Q::compute,  P::recompute, A::elementwise},
  {K::backward,            "Backward",          Owner::unit,  Q::compute,  P::backward,  A::elementwise,   true},
  {K::backward_input,      "BackwardInput",     Owner::unit,  Q::compute,  P::input,     A::elementwise},
  {K::backward_weight,     "BackwardWeight",    Owner::unit,  Q::compute,  P::weight,    A::elementwise,   true},
  {K::send,                "Send",              Owner::unit,  Q::send,     P::send,      A::communication},
  {K::receive,             "Receive",           Owner::unit,  Q::receive,  P::receive,   A::communication},
  {K::fetch,               "Fetch",             Owner::value, Q::fetch,    P::fetch,     A::offload},
  {K::evict,               "Evict",             Owner::value, Q::evict,    P::evict,     A::offload},
  {K::reduce_gradient,     "ReduceGradient",    Owner::group, Q::reduce,   P::reduce,    A::communication},
  {K::all_reduce_gradient, "AllReduceGradient", Owner::group, Q::reduce,   P::reduce,    A::communication},
  {K::gather_replicas,     "GatherReplicas",    Owner::group, Q::replicas, P::reduce,    A::communication},
  {K::reduce_replicas,     "ReduceReplicas",    Owner::group, Q::replicas, P::reduce,    A::communication},
  {K::reduce_tied,         "ReduceTied",        Owner::group, Q::tied,     P::reduce,    A::communication},
  {K::gather_loss,         "GatherLoss",        Owner::step,  Q::loss,     P::norm,      A::communication},
  {K::sum_squares,         "SumSquares",        Owner::group, Q::compute,  P::optimizer, A::optimizer},
  {K::gather_norm,         "GatherNorm",        Owner::step,  Q::norm,     P::norm,      A::optimizer},
  {K::clip,                "Clip",              Owner::step,  Q::compute,  P::optimizer, A::optimizer},
  {K::step,                "Step",              Owner::group, Q::compute,  P::optimizer, A::optimizer},
};
// clang-format on

constexpr bool rows_stand_in_order() {
  for (size_t i = 0; i < std::size(kTable); ++i)
    if (static_cast<size_t>(kTable[i].kind) != i) return false;
  return kTable[std::size(kTable) - 1].kind == ActionKind::step;
}
static_assert(rows_stand_in_order(), "one row for each ActionKind, in the order of the enumerators");

}  // namespace

const ActionTraits& traits_of(ActionKind kind) { return kTable[static_cast<size_t>(kind)]; }

std::string_view name_of(QueueKind kind) {
  static constexpr std::string_view kNames[] = {"compute", "gather", "reduce",  "replicas", "tied", "loss",
                                                "norm",    "send",   "receive", "fetch",    "evict"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace trireme::schedule
