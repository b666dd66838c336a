// What all calls on a segment share (SegmentContext and SegmentTask of segment_task.h), and how ranks learn of each
// other's calls (parts of CollectiveTask). Each rank writes a descriptor, and a small input, into its ring. It stores
// the call's number last, and looks for that number in its peers' rings.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/comm/fold.h"
#include "trireme/comm/shared_memory/segment_communicator.h"

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
        fmt::format("[comm] a {} was waited for after its communicator was destroyed; keep the communicator until its "
                    "works are done",
                    to_string(call_.collective.operation)));
  return driver->drive_for(*this, wait);
}

void SegmentTask::restart(Call& call) {
  std::swap(call_, call);
  done_ = is_looked_at_ = false;
}

void SegmentTask::set_done() {
  done_ = true;
  call_.collective.input = call_.collective.output = at::Tensor();
}

std::atomic_ref<uint64_t> CollectiveTask::number_of(int k) const {
  return std::atomic_ref(reinterpret_cast<CallDescriptor*>(context_.segment->call(k, call_.sequence))->number);
}

// A slot of the ring holds this call or an older one, because no rank is ahead by a whole ring.
bool CollectiveTask::all_have_called() {
  while (num_called_ < size() && number_of(num_called_).load(std::memory_order_acquire) == call_.sequence + 1)
    ++num_called_;
  return num_called_ == size();
}

// A small input goes next to the descriptor, if peers have taken the slot's earlier contents.
SharedPlace CollectiveTask::place_input() {
  const at::Tensor& input = call_.collective.input;
  const uint64_t sequence = call_.sequence;
  if (!input.defined() || input.numel() == 0) return {};
  const auto bytes = static_cast<int64_t>(input.nbytes());
  const bool free =
      sequence < SharedSegment::kEagerSlots || context_.all_taken(sequence - SharedSegment::kEagerSlots + 1);
  if (bytes > context_.segment->layout().eager_bytes || !free) return context_.locate(input);
  std::byte* slot = context_.segment->eager_slot(rank(), sequence);
  // Ranks that share this core find the lines in its cache.
  context_.crowded ? static_cast<void>(std::memcpy(slot, input.const_data_ptr(), bytes))
                   : copy_for_peer(slot, input.const_data_ptr(), bytes);
  return {kEager, 0};
}

bool CollectiveTask::publish(bool is_first) {
  if (published_) return true;
  SharedSegment& s = *context_.segment;
  const uint64_t sequence = call_.sequence;
  if (sequence >= SharedSegment::kCallRing && !context_.all_taken(sequence - SharedSegment::kCallRing + 1))
    return false;
  // The line is in a peer's cache; it arrives while the input is copied.
  __builtin_prefetch(s.call(rank(), sequence), 1);
  std::vector<std::byte>& written = context_.descriptor;
  written.resize(descriptor_bytes(size()));
  write_descriptor(written.data(), call_, sequence, place_input(), context_.locate(call_.collective.output), size());
  constexpr int64_t number_bytes = sizeof(CallDescriptor::number);
  std::memcpy(s.call(rank(), sequence) + number_bytes, written.data() + number_bytes,
              descriptor_bytes(size()) - number_bytes);
  published_ = true;
  number_of(rank()).store(sequence + 1, std::memory_order_seq_cst);
  if (context_.crowded) arrive_at_meeting(is_first);
  if (!meets_ && s.has_sleepers() && all_have_called()) s.ring_doorbell();
  // Stored after the verdict: if this rank dies before it, its peers see that it has not made the call.
  context_.me().posted.store(sequence + 1, std::memory_order_release);
  return true;
}

// Reads all ranks' calls.
std::optional<Mismatch> CollectiveTask::compare_calls() {
  calls_.clear();
  for (int k = 0; k < size(); ++k) calls_.push_back(read_descriptor(context_.segment->call(k, call_.sequence), size()));
  return find_mismatch(context_.group, calls_);
}

}  // namespace trireme::comm
