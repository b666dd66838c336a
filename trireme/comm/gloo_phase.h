// One phase of a collective (exchange.h) over a GlooChannel, in chunks: while one chunk is folded the next are on
// their way, so what is received fits into a small pool that stays in the cache and is never faulted in again.
// Chunks are cut alike on all ranks, and each message is one chunk.
#pragma once

#include "trireme/comm/exchange.h"
#include "trireme/comm/gloo_channel.h"

namespace trireme::comm {

/// Memory that is asked for again and again: kept, because fresh pages cost more than the transfer.
class GlooPool {
 public:
  /// At least `bytes`; what an earlier call returned is lost.
  std::byte* ask(int64_t bytes);

 private:
  at::Tensor memory_;
};

/// Whether the terms of a sum are rounded to bf16 for their way, where that is asked for.
constexpr bool fits_bf16(at::ScalarType input, ReduceOp op) { return input == at::kFloat && op == ReduceOp::sum; }

class GlooPhase {
 public:
  /// Slices up to this size travel with the header of the call (gloo_exchange.h), without messages of their own.
  static constexpr int64_t kInlineBytes = 8 << 10;

  struct Options {
    bool inlines = false;  ///< small slices are in the headers
    bool bf16 = false;     ///< fp32 sums: terms travel, and are folded, as bf16
    GlooStream stream = GlooStream::collective;
  };

  /// `phase` must outlive this.
  GlooPhase(GlooChannel& channel, const Exchange& phase, GlooPool& pool, Options options);

  /// Bytes of the slice for `peer` in the header, which are written to `to`; 0 when it travels on its own.
  int64_t write_inline(int peer, std::byte* to) const;
  /// Where the slice of `peer` is, when it is one that travels in its header.
  void read_inline(int peer, const std::byte* from) { inline_sources_[peer] = from; }

  /// Posts the first chunks.
  void start();
  /// Does the rest. Nothing of the output's fold is written before this.
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
  bool converts_;          // the input is fp32, the wire bf16
  at::ScalarType wire_;
  int64_t wire_size_;
  int64_t chunk_elements_, num_chunks_;
  std::byte* staging_ = nullptr;
  std::vector<Slot> slots_;  // by chunk modulo their number
  std::vector<const std::byte*> inline_sources_;  // by peer
};

}  // namespace trireme::comm
