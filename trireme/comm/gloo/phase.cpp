#include "trireme/comm/gloo/phase.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "trireme/comm/fold.h"

namespace trireme::comm {
namespace {
// The number of chunks in transit, and their bytes: large enough that the cost per message is small, small enough that
// a chunk is still in the cache when it is folded.
constexpr int64_t kDepth = 3, kChunkBytes = GlooChannel::kMaxBytes, kMinChunkBytes = 64 << 10;
constexpr int64_t kPoolBytes = 4 << 20;

int64_t element_size(at::ScalarType dtype) { return static_cast<int64_t>(c10::elementSize(dtype)); }

at::ScalarType dtype_of(const Exchange& phase) {
  return phase.input.defined() ? phase.input.scalar_type() : phase.output.scalar_type();
}

// Converts blocks below ATen's grain size, so that ATen does not wake its thread pool.
void to_bf16(const void* from, void* to, int64_t count) {
  constexpr int64_t kBlock = 16 << 10;
  auto* x = static_cast<float*>(const_cast<void*>(from));
  auto* y = static_cast<at::BFloat16*>(to);
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    at::from_blob(y + begin, {n}, at::TensorOptions(at::kBFloat16))
        .copy_(at::from_blob(x + begin, {n}, at::TensorOptions(at::kFloat)));
  }
}
}  // namespace

std::byte* GlooPool::ask(int64_t bytes) {
  if (!memory_.defined() || memory_.numel() < bytes) memory_ = at::empty({bytes}, at::kByte);
  return static_cast<std::byte*>(memory_.mutable_data_ptr());
}

GlooPhase::GlooPhase(GlooChannel& channel, const Exchange& phase, GlooPool& pool, Options options)
    : channel_(channel),
      phase_(phase),
      pool_(pool),
      options_(options),
      rank_(channel.group().rank),
      size_(channel.group().size),
      slots_(kDepth),
      inline_sources_(size_) {
  const at::ScalarType dtype = dtype_of(phase);
  converts_ = options.bf16 && phase.fold && fits_bf16(dtype, phase.options.op);
  wire_ = converts_ ? at::kBFloat16 : dtype;
  wire_size_ = element_size(wire_);
  const int64_t in_flight = kDepth * (size_ - 1) * (converts_ ? 2 : 1);
  const int64_t bytes =
      phase.fold ? std::clamp(kPoolBytes / (in_flight + 1) / 4096 * 4096, kMinChunkBytes, kChunkBytes) : kChunkBytes;
  chunk_elements_ = bytes / wire_size_;
  num_chunks_ = (phase.max_count + chunk_elements_ - 1) / chunk_elements_;
  chunk_elements_ = std::min(chunk_elements_, phase.max_count);
}

GlooPhase::Range GlooPhase::chunk_of(int64_t count, int64_t chunk) const {
  const int64_t begin = std::min(count, chunk * chunk_elements_);
  return {begin, std::min(count - begin, chunk_elements_)};
}

// [receives of slot 0 by peer, of slot 1, ..., own terms as bf16, sends of slot 0 by peer, ...]
std::byte* GlooPhase::staging(int64_t chunk, int peer, bool sends) const {
  const int64_t peers = size_ - 1, slot = chunk % kDepth, place = (peer - rank_ - 1 + size_) % size_;
  const int64_t index = peer == rank_ ? kDepth * peers : slot * peers + place + (sends ? kDepth * peers + 1 : 0);
  return staging_ + index * chunk_elements_ * wire_size_;
}

const std::byte* GlooPhase::input(int64_t element) const {
  return static_cast<const std::byte*>(phase_.input.const_data_ptr()) + element * phase_.input.element_size();
}

std::byte* GlooPhase::output(int64_t element) const {
  return static_cast<std::byte*>(phase_.output.mutable_data_ptr()) + element * phase_.output.element_size();
}

const void* GlooPhase::outgoing(int64_t begin, int64_t count, std::byte* converted) const {
  if (!converts_) return input(begin);
  to_bf16(input(begin), converted, count);
  return converted;
}

int64_t GlooPhase::write_inline(int peer, std::byte* to) const {
  const Exchange::Give& give = phase_.give[peer];
  if (give.count == 0 || !is_inline(give.count)) return 0;
  const void* from = outgoing(give.begin, give.count, to);
  if (from != to) std::memcpy(to, from, give.count * wire_size_);
  return give.count * wire_size_;
}

void GlooPhase::start() {
  const int64_t places = kDepth * (size_ - 1);
  if (phase_.fold) staging_ = pool_.ask((converts_ ? 2 * places + 1 : places) * chunk_elements_ * wire_size_);
  for (int64_t c = 0; c < std::min(kDepth, num_chunks_); ++c) post(c);
}

void GlooPhase::post(int64_t chunk) {
  Slot& slot = slots_[chunk % kDepth];
  for (int i = 1; i < size_; ++i) {
    const int k = (rank_ + size_ - i) % size_;
    const Exchange::Take& take = phase_.take[k];
    const Range r = chunk_of(take.count, chunk);
    if (r.count == 0 || is_inline(take.count)) continue;
    std::byte* to = phase_.fold ? staging(chunk, k, false) : output(take.begin + r.begin);
    slot.receives.push_back(
        channel_.receive(to, r.count * wire_size_, k, gloo_tag(options_.stream, r.count * wire_size_)));
  }
  for (int i = 1; i < size_; ++i) {
    const int k = (rank_ + i) % size_;
    const Exchange::Give& give = phase_.give[k];
    const Range r = chunk_of(give.count, chunk);
    if (r.count == 0 || is_inline(give.count)) continue;
    const void* from = outgoing(give.begin + r.begin, r.count, converts_ ? staging(chunk, k, true) : nullptr);
    slot.sends.push_back(channel_.send(from, r.count * wire_size_, k, gloo_tag(options_.stream, r.count * wire_size_)));
  }
}

void GlooPhase::finish() {
  if (!phase_.fold) place_own_and_inline();
  for (int64_t c = 0; c < num_chunks_; ++c) {
    Slot& slot = slots_[c % kDepth];
    channel_.wait(slot.receives);
    // The sends must be complete: the fold may overwrite the input, and the slot's next chunk the converted terms.
    channel_.wait(slot.sends);
    if (phase_.fold) fold_chunk(c);
    if (c + kDepth < num_chunks_) post(c + kDepth);
  }
}

void GlooPhase::place_own_and_inline() {
  exchange_with_self(phase_, rank_);
  for (int k = 0; k < size_; ++k) {
    const Exchange::Take& take = phase_.take[k];
    if (k != rank_ && take.count > 0 && is_inline(take.count))
      std::memcpy(output(take.begin), inline_sources_[k], take.count * wire_size_);
  }
}

void GlooPhase::fold_chunk(int64_t chunk) {
  const Range r = chunk_of(phase_.take[rank_].count, chunk);
  if (r.count == 0) return;
  std::vector<const void*> sources(size_);
  for (int k = 0; k < size_; ++k)
    if (k == rank_)
      // Rounded like the other ranks' terms, because ranks that fold the same sum must get the same bits.
      sources[k] = outgoing(phase_.give[k].begin + r.begin, r.count, converts_ ? staging(chunk, k, false) : nullptr);
    else
      sources[k] = is_inline(phase_.take[k].count) ? inline_sources_[k] : staging(chunk, k, false);
  fold(output(r.begin), phase_.output.scalar_type(), sources, wire_, r.count, phase_.options);
}

}  // namespace trireme::comm
