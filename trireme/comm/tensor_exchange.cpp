#include "trireme/comm/tensor_exchange.h"

#include <ATen/ATen.h>

#include <limits>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {
// One step of the fold, rounded to the dtype of `out`, which may be a or b. If b is narrower, a's dtype is used.
void step(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, ReduceOp op) {
  if (op == ReduceOp::sum)
    at::add_out(out, a, b);
  else
    at::maximum_out(out, a, b);
}

// Index of the term that is the output, or -1. check_call refuses every other overlap.
int64_t find_output(const at::Tensor& output, std::span<const at::Tensor> terms) {
  for (size_t k = 0; k < terms.size(); ++k)
    if (terms[k].const_data_ptr() == output.const_data_ptr()) return static_cast<int64_t>(k);
  return -1;
}

// Every rank's output gets the same sum. It is computed once, in the first output; of all terms, only the first may be
// that same memory.
void all_reduce_once(std::span<const Collective* const> calls) {
  std::vector<at::Tensor> terms;
  for (const Collective* call : calls) terms.push_back(call->input.view({-1}));
  const at::Tensor sum = calls[0]->output.view({-1});
  fold_tensors(sum, terms, calls[0]->options);
  for (const Collective* call : calls.subspan(1)) call->output.view({-1}).copy_(sum);
}
}  // namespace

at::Tensor slice_of(const at::Tensor& tensor, int64_t begin, int64_t count) {
  return tensor.view({-1}).narrow(0, begin, count);
}

void fold_tensors(const at::Tensor& output, std::span<const at::Tensor> terms, ReduceOptions options) {
  if (output.numel() == 0) return;
  const int64_t place = find_output(output, terms), n = static_cast<int64_t>(terms.size());
  at::Tensor sum = output;
  int64_t next = 0;
  if (options.accumulate) {
    if (place > 0) sum = output.clone();
  } else if (n == 1 || terms[0].scalar_type() != output.scalar_type()) {
    if (place != 0) sum.copy_(terms[0]);
    next = 1;
  } else {
    // If a later term is the output, that memory must stay unchanged until the term's turn.
    if (place > 1) sum = at::empty_like(output);
    step(sum, terms[0], terms[1], options.op);
    next = 2;
  }
  for (; next < n; ++next) {
    at::Tensor to = next == place ? output : sum;
    step(to, sum, terms[next], options.op);
    sum = std::move(to);
  }
}

void take_slices(const Exchange& phase, std::span<const at::Tensor> slices) {
  if (phase.fold) {
    const Exchange::Take& all = phase.take[0];  // the same for every giver
    if (all.count > 0) fold_tensors(slice_of(phase.output, all.begin, all.count), slices, phase.options);
    return;
  }
  for (size_t k = 0; k < slices.size(); ++k) {
    const Exchange::Take& take = phase.take[k];
    if (take.count == 0) continue;
    at::Tensor to = slice_of(phase.output, take.begin, take.count);
    if (to.const_data_ptr() != slices[k].const_data_ptr()) to.copy_(slices[k]);
  }
}

void exchange_all(std::span<const Collective* const> calls) {
  const int size = static_cast<int>(calls.size());
  if (calls[0]->operation == Operation::barrier) return;
  if (calls[0]->operation == Operation::all_reduce && !calls[0]->options.accumulate) return all_reduce_once(calls);
  constexpr int64_t kAlwaysWhole = std::numeric_limits<int64_t>::max();
  std::vector<Exchange> phases;
  std::vector<at::Tensor> sources;
  for (int r = 0; r < size; ++r) {
    auto plan = plan_exchanges(*calls[r], r, size, {}, kAlwaysWhole);
    check_invariant(plan.size() == 1, "a collective without sliced sums is one phase");
    phases.push_back(std::move(plan[0]));
    sources.push_back(phases[r].stage ? phases[r].input.clone() : phases[r].input);
  }
  for (int r = 0; r < size; ++r) {
    std::vector<at::Tensor> slices(size);
    for (int k = 0; k < size; ++k)
      if (const int64_t count = phases[r].take[k].count; count > 0)
        slices[k] = slice_of(sources[k], phases[k].give[r].begin, count);
    take_slices(phases[r], slices);
  }
}

}  // namespace trireme::comm
