// A wrapped unit's part in tensor parallelism: what it calls, and the gradients of what every rank holds.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "trireme/model/wrapped_unit.h"

namespace trireme::model {

UnitTraffic WrappedUnit::traffic(const BatchShape&, const Precision&) const {
  UnitTraffic u{.forward = forward_rows_, .recompute = forward_rows_, .backward = backward_rows_};
  if (is_loss()) u.backward.insert(u.backward.begin(), forward_rows_.begin(), forward_rows_.end());
  return u;
}

// In one call, because these are many small tensors.
void WrappedUnit::sum_replicated(std::vector<at::Tensor>& gradients) const {
  const at::NoGradGuard no_grad;
  const auto type = at::promote_types(compute_, at::kFloat);
  std::vector<at::Tensor> parts;
  std::vector<size_t> places;
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].split_dim >= 0) continue;
    const at::Tensor& g = gradients[i];
    parts.push_back(g.defined() ? g.to(type).reshape({-1}) : at::zeros({specs_[i].numel()}, type));
    places.push_back(i);
  }
  if (parts.empty()) return;
  const at::Tensor sums = ranks_->sum(at::cat(parts));
  int64_t at = 0;
  for (const size_t i : places) {
    gradients[i] = sums.narrow(0, at, specs_[i].numel()).view(specs_[i].shape);
    at += specs_[i].numel();
  }
}

}  // namespace trireme::model
