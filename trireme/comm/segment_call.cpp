// How ranks learn of each other's calls (parts of CollectiveTask, segment_task.h): each writes a descriptor and, where
// it is small, its input into its ring, the call's number last, and looks for that number in its peers' rings.
#include <cstring>

#include "trireme/comm/fold.h"
#include "trireme/comm/segment_task.h"

namespace trireme::comm {

std::atomic_ref<uint64_t> CollectiveTask::number_of(int k) const {
  return std::atomic_ref(reinterpret_cast<CallDescriptor*>(context_.segment->call(k, call_.sequence))->number);
}

// A slot of the ring holds this call or an older one: no rank is ahead by the whole ring.
bool CollectiveTask::all_have_called() {
  while (num_called_ < size() && number_of(num_called_).load(std::memory_order_acquire) == call_.sequence + 1)
    ++num_called_;
  return num_called_ == size();
}

// Peers on this core find the lines in its cache.
void CollectiveTask::copy_for_peers(std::byte* to, const void* from, int64_t bytes) const {
  if (context_.crowded)
    std::memcpy(to, from, bytes);
  else
    copy_for_peer(to, from, bytes);
}

// Small inputs go next to the descriptor, as long as peers have taken what was there.
SharedPlace CollectiveTask::place_input() {
  const at::Tensor& input = call_.collective.input;
  const uint64_t sequence = call_.sequence;
  if (!input.defined() || input.numel() == 0) return {};
  const auto bytes = static_cast<int64_t>(input.nbytes());
  const bool free =
      sequence < SharedSegment::kEagerSlots || context_.all_taken(sequence - SharedSegment::kEagerSlots + 1);
  if (bytes > context_.segment->layout().eager_bytes || !free) return context_.locate(input);
  copy_for_peers(context_.segment->eager_slot(rank(), sequence), input.const_data_ptr(), bytes);
  return {kEager, 0};
}

bool CollectiveTask::publish(bool is_first) {
  if (published_) return true;
  SharedSegment& s = *context_.segment;
  const uint64_t sequence = call_.sequence;
  if (sequence >= SharedSegment::kCallRing && !context_.all_taken(sequence - SharedSegment::kCallRing + 1))
    return false;
  __builtin_prefetch(s.call(rank(), sequence), 1);  // peers have it; the input's way is about as long
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
  // After the verdict: a rank that is gone without it is one that others wait for.
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
