// Small calls of ranks that share cores (parts of CollectiveTask, segment_task.h). The cost of such a call is the
// context switches between ranks, about 1.5 us each and far more than the work. So every rank runs once per call: it
// posts its call and its input and counts itself. The last rank compares all calls, does the work for all and stores
// the verdict. The others read the verdict and copy their part of the result.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "trireme/comm/fold.h"
#include "trireme/comm/shared_memory/segment_task.h"

namespace trireme::comm {
namespace {
// The same on all ranks if their calls match. If ranks differ here, compare_calls() finds the mismatch.
bool is_small(const Collective& call, int64_t limit) {
  if (call.options.accumulate) return false;  // the outputs may differ
  const auto fits = [&](int64_t elements, const at::Tensor& t) {
    const int64_t bytes = elements * static_cast<int64_t>(t.element_size());
    return bytes > 0 && bytes <= limit;
  };
  switch (call.operation) {
    case Operation::barrier:
      return true;
    case Operation::all_reduce:
    case Operation::reduce_scatter:
      return fits(call.input.numel(), call.input) && fits(call.input.numel(), call.output);
    case Operation::all_gather:
      return fits(call.output.numel(), call.output);
    default:
      return false;
  }
}

int64_t elements_before(std::span<const int64_t> counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
}
}  // namespace

void CollectiveTask::arrive_at_meeting(bool is_first) {
  meets_ = is_small(call_.collective, context_.segment->layout().eager_bytes);
  Meeting& meeting = context_.segment->meeting(call_.sequence);
  // No rank is ahead by a whole ring of calls. So only arrivals at this call are missing from the count.
  const uint64_t everyone = size() * (call_.sequence / SharedSegment::kCallRing + 1);
  if (meeting.arrivals.fetch_add(1, std::memory_order_acq_rel) + 1 < everyone) return;
  // If calls differ, each rank finds the mismatch by itself later.
  const bool together = meets_ && !compare_calls() && all_eager();
  const Meeting::Verdict verdict = together ? do_for_all(is_first) : Meeting::each;
  meeting.verdict.store(Meeting::sign(call_.sequence, rank(), verdict), std::memory_order_seq_cst);
  if (meets_) context_.segment->ring_if_sleepers();
}

bool CollectiveTask::meet() {
  const uint64_t sign = context_.segment->meeting(call_.sequence).verdict.load(std::memory_order_acquire);
  if (!Meeting::is_of(sign, call_.sequence)) return false;
  const Meeting::Verdict verdict = Meeting::verdict_of(sign);
  meets_ = false;
  if (verdict == Meeting::each) return advance();
  if (verdict == Meeting::slot) take_result(Meeting::rank_of(sign));
  take();
  set_done();
  return true;
}

bool CollectiveTask::all_eager() const {
  return std::ranges::all_of(calls_, [](const CallView& c) {
    return c.fixed->input_elements <= 0 || c.fixed->input_place().region == kEager;
  });
}

// The result goes to the common output if all ranks have the same one, else to this rank's eager slot; nobody else
// reads the input there. Earlier calls may still use a common output until they are complete on this rank (is_first).
Meeting::Verdict CollectiveTask::do_for_all(bool is_first) {
  const Collective& c = call_.collective;
  if (c.operation == Operation::barrier) return Meeting::done;
  const bool one = c.operation != Operation::reduce_scatter && output_memory() == OutputMemory::one;
  if (one && !is_first) return Meeting::each;
  std::byte* to =
      one ? static_cast<std::byte*>(c.output.mutable_data_ptr()) : context_.segment->eager_slot(rank(), call_.sequence);
  fold_from_.resize(size());
  for (int k = 0; k < size(); ++k)
    fold_from_[k] = k == rank() ? c.input.const_data_ptr() : context_.segment->eager_slot(k, call_.sequence);
  if (c.operation == Operation::all_gather) {
    std::byte* end = to;
    for (int k = 0; k < size(); ++k) {
      const auto bytes = c.counts[k] * static_cast<int64_t>(c.output.element_size());
      if (bytes > 0 && end != fold_from_[k]) std::memcpy(end, fold_from_[k], bytes);
      end += bytes;
    }
  } else {
    fold(to, c.output.scalar_type(), fold_from_, c.input.scalar_type(), c.input.numel(), c.options);
  }
  return one ? Meeting::done : Meeting::slot;
}

void CollectiveTask::take_result(int from) {
  const Collective& c = call_.collective;
  if (c.output.numel() == 0) return;
  const int64_t begin = c.operation == Operation::reduce_scatter ? elements_before(c.counts, rank()) : 0;
  std::memcpy(
      c.output.mutable_data_ptr(),
      context_.segment->eager_slot(from, call_.sequence) + begin * static_cast<int64_t>(c.output.element_size()),
      c.output.nbytes());
}

}  // namespace trireme::comm
