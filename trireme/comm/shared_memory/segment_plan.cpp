#include "trireme/comm/shared_memory/segment_plan.h"

#include <algorithm>

namespace trireme::comm {
namespace {
// Up to this size each rank of an all_reduce folds whole vectors: one phase instead of two.
constexpr int64_t kWholeReduceBytes = 16 << 10;

at::ScalarType dtype_of(const at::Tensor& t) { return t.defined() ? t.scalar_type() : at::ScalarType::Undefined; }
int64_t elements_of(const at::Tensor& t) { return t.defined() ? t.numel() : -1; }

bool in_place(const Collective& c) {
  return c.input.defined() && c.output.defined() && c.input.const_data_ptr() == c.output.const_data_ptr();
}

// Bytes from the begin of `whole` to `part`, or -1 if `part` is elsewhere.
int64_t place_in(const at::Tensor& whole, const at::Tensor& part) {
  if (!whole.defined() || !part.defined()) return -1;
  const auto* begin = static_cast<const std::byte*>(whole.const_data_ptr());
  const auto* p = static_cast<const std::byte*>(part.const_data_ptr());
  return p >= begin && p <= begin + whole.nbytes() ? p - begin : -1;
}

PlannedPhase without_tensors(Exchange tables, const Collective& call) {
  PlannedPhase phase;
  const at::Tensor input = std::move(tables.input), output = std::move(tables.output);
  phase.input_dtype = dtype_of(input);
  phase.output_dtype = dtype_of(output);
  phase.reads_output = tables.source == Exchange::Source::output;
  phase.input_begin = std::max<int64_t>(0, place_in(phase.reads_output ? call.output : call.input, input));
  phase.output_begin = std::max<int64_t>(0, place_in(call.output, output));
  phase.tables = std::move(tables);
  phase.tables.input = phase.tables.output = at::Tensor();
  return phase;
}

std::vector<PlannedPhase> plan(const Collective& call, int rank, std::span<const CallView> calls,
                               OutputMemory outputs) {
  const int size = static_cast<int>(calls.size());
  std::vector<PlannedPhase> phases;
  // If outputs may differ, each rank adds to its own. And small sums cost less than a wait for the others' slices.
  const bool pushes =
      call.operation == Operation::all_reduce &&
      (outputs == OutputMemory::one || (outputs == OutputMemory::reachable && !call.options.accumulate &&
                                        static_cast<int64_t>(call.input.nbytes()) > kWholeReduceBytes));
  if (pushes) {
    phases.push_back(without_tensors(plan_slice_for_all(call, rank, size), call));
    phases.back().pushes = true;
    return phases;
  }
  for (Exchange& tables : plan_exchanges(call, rank, size, calls, kWholeReduceBytes))
    phases.push_back(without_tensors(std::move(tables), call));
  return phases;
}
}  // namespace

bool PlanCache::same_kind(const Entry& e, const Collective& c, OutputMemory outputs) {
  return e.kind.operation == c.operation && c.operation != Operation::all_to_all && e.kind.root == c.root &&
         e.kind.options.op == c.options.op && e.kind.options.accumulate == c.options.accumulate &&
         e.input_dtype == dtype_of(c.input) && e.output_dtype == dtype_of(c.output) &&
         e.input_elements == elements_of(c.input) && e.output_elements == elements_of(c.output) &&
         e.in_place == in_place(c) && e.outputs == outputs && e.kind.counts == c.counts;
}

const std::vector<PlannedPhase>& PlanCache::find_or_plan(const Collective& call, int rank,
                                                         std::span<const CallView> calls, OutputMemory outputs) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const size_t at = (next_ + i) % entries_.size();
    if (!same_kind(entries_[at], call, outputs)) continue;
    next_ = at + 1;
    return entries_[at].phases;
  }
  const bool room = entries_.size() < kLimit;
  if (room) entries_.emplace_back();
  const size_t at = room ? entries_.size() - 1 : oldest_++ % kLimit;
  Collective kind = call;
  kind.input = kind.output = at::Tensor();
  entries_[at] = {.kind = std::move(kind),
                  .input_dtype = dtype_of(call.input),
                  .output_dtype = dtype_of(call.output),
                  .input_elements = elements_of(call.input),
                  .output_elements = elements_of(call.output),
                  .in_place = in_place(call),
                  .outputs = outputs,
                  .phases = plan(call, rank, calls, outputs)};
  next_ = at + 1;
  return entries_[at].phases;
}

}  // namespace trireme::comm
