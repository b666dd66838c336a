// What all calls on a segment have in common (SegmentContext and SegmentTask of segment_task.h).
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/comm/segment_task.h"

namespace trireme::comm {

SharedPlace SegmentContext::locate(const at::Tensor& tensor) const {
  if (!tensor.defined() || tensor.numel() == 0) return {};
  const std::byte* begin = static_cast<const std::byte*>(tensor.const_data_ptr());
  for (size_t r = 0; r < regions.size(); ++r) {
    const std::byte* base = regions[r].parts[group.rank];
    if (begin >= base && begin + tensor.nbytes() <= base + regions[r].bytes)
      return {static_cast<int32_t>(r), begin - base};
  }
  return {};
}

void SegmentContext::fail(const Call& call, int peer, std::chrono::milliseconds elapsed, const std::string& reason) {
  const Operation operation = call.collective.operation;
  segment->abort(fmt::format("{} gave up in {} #{}: {}", name_rank(group, group.rank), to_string(operation),
                             call.sequence, reason));
  throw_comm_error(group, call, peer, elapsed, reason);
}

bool SegmentContext::all_taken(uint64_t calls) {
  if (taken_by_all >= calls) return true;
  taken_by_all = segment->rank(0).taken.load(std::memory_order_acquire);
  for (int k = 1; k < segment->size(); ++k)
    taken_by_all = std::min(taken_by_all, segment->rank(k).taken.load(std::memory_order_acquire));
  return taken_by_all >= calls;
}

bool SegmentTask::drive(bool wait) {
  const auto driver = driver_.lock();
  if (!driver)
    throw UsageError(
        fmt::format("[comm] a {} was waited for after its communicator was destroyed; keep the "
                    "communicator until its works are done",
                    to_string(call_.collective.operation)));
  return driver->drive_for(*this, wait);
}

void SegmentTask::restart(Call& call) {
  std::swap(call_, call);
  done_ = false;
}

void SegmentTask::set_done() {
  done_ = true;
  call_.collective.input = call_.collective.output = at::Tensor();  // lets go of them
}

}  // namespace trireme::comm
