// One phase of a collective (exchange.h) over a GlooChannel, in chunks: while one chunk is folded, the next ones are in
// transit. So the receive buffers are a small pool that stays in the cache and causes no further page faults. All ranks
// use the same chunks, and each message is one chunk.
#pragma once

#include "trireme/comm/exchange.h"
#include "trireme/comm/gloo/channel.h"

namespace trireme::comm {

/// A buffer that is kept between uses, because new pages cost more than the transfer.
class GlooPool {
 public:
  /// Memory of at least `bytes`; invalidates the memory of earlier calls.
  std::byte* ask(int64_t bytes);

 private:
  at::Tensor memory_;
};

/// Whether GlooOptions::bf16_sums applies to a reduction.
constexpr bool fits_bf16(at::ScalarType input, ReduceOp op) { return input == at::kFloat && op == ReduceOp::sum; }

class GlooPhase {
 public:
  /// Slices up to this size are sent in the header of the call (gloo/exchange.h), not in messages of their own.
  static constexpr int64_t kInlineBytes = 8 << 10;

  struct Options {
    bool inlines = false;  ///< small slices are sent in the headers
    bool bf16 = false;  ///< fp32 sums: terms are sent and folded as bf16
    GlooStream stream = GlooStream::collective;
  };

  /// `phase` must outlive this object.
  GlooPhase(GlooChannel& channel, const Exchange& phase, GlooPool& pool, Options options);

  /// Writes the slice for `peer` to `to` in the header, and returns its bytes; 0 if a message of its own carries it.
  int64_t write_inline(int peer, std::byte* to) const;
  /// Tells where the slice from `peer` is, if the header holds it.
  void read_inline(int peer, const std::byte* from) { inline_sources_[peer] = from; }

  /// Posts the first chunks.
  void start();
  /// Completes all chunks. Nothing is folded into the output before this call.
  void finish();

 private:
  struct Slot {
    std::vector<GlooChannel::Transfer> receives, sends;
  };
  struct Range {
    int64_t begin, count;
  };

  Range chunk_of(int64_t count, int64_t chunk) const;
  bool is_inline(int64_t count) const { return options_.inlines && count * wire_size_ <= kInlineBytes; }
  std::byte* staging(int64_t chunk, int peer, bool sends) const;
  const std::byte* input(int64_t element) const;
  std::byte* output(int64_t element) const;
  const void* outgoing(int64_t begin, int64_t count, std::byte* converted) const;
  void post(int64_t chunk);
  void place_own_and_inline();
  void fold_chunk(int64_t chunk);

  GlooChannel& channel_;
  const Exchange& phase_;
  GlooPool& pool_;
  Options options_;
  int rank_, size_;
  bool converts_;  // the input is fp32, the wire bf16
  at::ScalarType wire_;
  int64_t wire_size_;
  int64_t chunk_elements_, num_chunks_;
  std::byte* staging_ = nullptr;
  std::vector<Slot> slots_;  // chunk c uses slot c modulo the number of slots
  std::vector<const std::byte*> inline_sources_;  // by peer
};

}  // namespace trireme::comm
