// The loss of a step and of an evaluation: all ranks' sums, added in the order of micro-batches.
#include <ATen/ATen.h>

#include "trireme/engine/engine.h"

namespace trireme::engine {

using schedule::List;
using schedule::Schedule;
using schedule::Value;
using schedule::ValueKind;

double Engine::evaluate(const LoadBatch& load_batch, int64_t supervised_tokens, LossSums* so_far) {
  inputs_ = nullptr;
  given_up_ = false;
  load_batch_ = &load_batch;
  LossSums of_this_run;
  LossSums& sums = so_far != nullptr ? *so_far : of_this_run;
  const int64_t earlier = sums.runs++ * plan_.request.micro_batches(List::evaluate);
  for (Bound& b : bound_[List::evaluate])
    b.unit.random.first_sequence = first_sequence(earlier + b.unit.micro_batch, b.unit.shape);
  run(List::evaluate);
  return mean_loss(List::evaluate, double(supervised_tokens), sums);
}

double Engine::mean_loss(List list, double tokens, LossSums& so_far) {
  const int n = plan_.request.micro_batches(list);
  const Schedule& s = plan_.train();
  const Value& v = s.values[s.find(ValueKind::loss_all, -1, -1)];
  const at::Tensor all = view(v, {v.bytes / 8}, at::kDouble).to(at::kCPU);  // on a GPU: when the step has ended
  const auto* losses = all.data_ptr<double>();
  double loss = 0;
  size_t at = 0;
  measures_.clear();
  for (const SumPlaces& places : sum_places_) {
    const std::vector<model::Measure> measures = model_.units[places.unit]->measures();
    const int64_t first = plan_.first_sum(places.unit), count = plan_.num_sums(places.unit);
    for (int64_t k = 0; k < count; ++k) {
      if (at == so_far.sums.size()) so_far.sums.push_back(0);
      double& sum = so_far.sums[at++];
      for (int i = 0; i < n; ++i)
        for (const auto& rank : places.ranks) sum += losses[n * rank.before + i * rank.count + first + k];
      const int64_t measure = k - (count - std::ssize(measures));  // -1: the loss of the last unit
      if (measure >= 0) measures_.push_back(sum / tokens);
      loss += (measure < 0 ? 1 : measures[static_cast<size_t>(measure)].weight) * sum;
    }
  }
  return loss / tokens;
}

}  // namespace trireme::engine
