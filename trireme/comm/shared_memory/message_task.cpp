// Messages between two ranks of a segment (the MessageTask of segment_task.h).
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "trireme/comm/fold.h"
#include "trireme/comm/shared_memory/segment_task.h"

namespace trireme::comm {
namespace {
struct MessageHeader {
  int64_t elements;
  int32_t dtype;
  int32_t element_bytes;
  int64_t reserved[6];
};
constexpr int64_t kHeaderBytes = sizeof(MessageHeader);
static_assert(kHeaderBytes == 64, "the ring holds whole headers without wrapping: its size is a multiple of 64");

// Small pieces, so that the receiver starts while the sender still copies.
constexpr int64_t kPiece = 64 << 10;

int64_t padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Bytes from stream position `at` to the end of the ring.
int64_t contiguous(uint64_t at, int64_t ring_bytes) {
  return ring_bytes - static_cast<int64_t>(at % static_cast<uint64_t>(ring_bytes));
}

std::string show(std::string_view dtype, int64_t elements) { return fmt::format("{}[{}]", dtype, elements); }
}  // namespace

bool MessageTask::send() {
  SharedSegment& s = *context_.segment;
  const int me = context_.group.rank, peer = call_.collective.root;
  const at::Tensor& tensor = call_.collective.input;
  const int64_t ring_bytes = s.layout().mailbox_bytes, payload = static_cast<int64_t>(tensor.nbytes());
  Mailbox& box = s.mailbox(me, peer);
  std::byte* ring = s.ring(me, peer);
  const uint64_t written = box.written.load(std::memory_order_relaxed);
  const int64_t room = ring_bytes - static_cast<int64_t>(written - box.read.load(std::memory_order_acquire));
  if (room < kHeaderBytes) return false;
  int64_t added = 0;
  if (moved_ == 0) {
    const MessageHeader header{
        tensor.numel(), static_cast<int32_t>(tensor.scalar_type()), static_cast<int32_t>(tensor.element_size()), {}};
    std::memcpy(ring + written % ring_bytes, &header, sizeof header);
    added = kHeaderBytes;
    moved_ = kHeaderBytes;
  } else {
    const int64_t left = payload - (moved_ - kHeaderBytes);
    const int64_t n = std::min({left, room, kPiece, contiguous(written, ring_bytes)});
    copy_for_peer(ring + written % ring_bytes,
                  static_cast<const std::byte*>(tensor.const_data_ptr()) + (moved_ - kHeaderBytes), n);
    moved_ += n;
    // The next header begins on a multiple of 64. `room` is also a multiple of 64, so the padding fits.
    added = n == left ? padded(n) : n;
  }
  box.written.store(written + added, std::memory_order_seq_cst);
  s.ring_if_sleepers();
  if (moved_ == kHeaderBytes + payload) set_done();
  return true;
}

bool MessageTask::receive() {
  SharedSegment& s = *context_.segment;
  const int me = context_.group.rank, peer = call_.collective.root;
  const at::Tensor& tensor = call_.collective.output;
  const int64_t ring_bytes = s.layout().mailbox_bytes, payload = static_cast<int64_t>(tensor.nbytes());
  Mailbox& box = s.mailbox(peer, me);
  const std::byte* ring = s.ring(peer, me);
  const uint64_t read = box.read.load(std::memory_order_relaxed);
  const int64_t ready = static_cast<int64_t>(box.written.load(std::memory_order_acquire) - read);
  if (ready == 0) return false;
  int64_t taken = 0;
  if (moved_ == 0) {
    MessageHeader header;
    std::memcpy(&header, ring + read % ring_bytes, sizeof header);
    if (header.elements != tensor.numel() || header.dtype != static_cast<int32_t>(tensor.scalar_type()))
      context_.fail(call_, peer, {},
                    fmt::format("{} sends {} but {} receives {}; both must name the same size and dtype",
                                name_rank(context_.group, peer),
                                show(dtype_name(static_cast<at::ScalarType>(header.dtype)), header.elements),
                                name_rank(context_.group, me), show(dtype_name(tensor.scalar_type()), tensor.numel())));
    taken = kHeaderBytes;
    moved_ = kHeaderBytes;
  } else {
    const int64_t left = payload - (moved_ - kHeaderBytes);
    const int64_t n = std::min({left, ready, contiguous(read, ring_bytes)});
    std::memcpy(static_cast<std::byte*>(tensor.mutable_data_ptr()) + (moved_ - kHeaderBytes), ring + read % ring_bytes,
                n);
    moved_ += n;
    taken = n == left ? padded(n) : n;
  }
  box.read.store(read + taken, std::memory_order_seq_cst);
  s.ring_if_sleepers();
  if (moved_ == kHeaderBytes + payload) set_done();
  return true;
}

bool MessageTask::advance() {
  bool moved = false;
  while (!done() && (call_.collective.operation == Operation::send ? send() : receive())) moved = true;
  return moved;
}

std::string MessageTask::lacks(int) const {
  return call_.collective.operation == Operation::send ? "does not receive" : "has sent nothing";
}

}  // namespace trireme::comm
