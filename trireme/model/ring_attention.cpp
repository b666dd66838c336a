// Ring attention: every rank keeps its queries; keys and values travel around the ring and are merged block by block.
// Rank r holds chunks r and 2 cp - 1 - r of 2 cp chunks. So all ranks have the same work, and attention among a rank's
// own tokens has the usual causal mask. In a block from an earlier rank, every local query sees the early half of the
// keys. In a block from a later rank, the late half of the queries sees every key. No other mask is needed. Source: Liu
// et al., Ring Attention (2023); zigzag order of the chunks: Megatron-LM's context parallelism
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/communicator.h"
#include "trireme/model/context_attention.h"
#include "trireme/ops/ops.h"

namespace trireme::model {
namespace {

enum RingWork { kRingWorkspace, kKv, kDKv, kDQ };

/// What the blocks of one call share. The dropout has the keys of this rank's queries; each block adds its positions.
struct RingCall {
  const BatchShape& shape;
  ops::AttentionDropout dropout;
  at::Tensor workspace;
};

/// A message to the next rank and one from the previous, on their way.
struct Hop {
  comm::WorkPtr sent, received;
  void wait() const {
    if (!sent) return;
    sent->wait();
    received->wait();
  }
};

class RingAttention final : public ContextAttention {
 public:
  RingAttention(const BlockWidths& widths, const AttentionTraits& traits, const Parallel& parallel)
      : widths_(widths), traits_(traits), parallel_(parallel) {}

  std::vector<int64_t> qkv_shape(const BatchShape& s) const override { return {tokens(s), widths_.qkv_width()}; }
  std::vector<int64_t> lse_shape(const BatchShape& s) const override {
    return {s.micro_batch, widths_.heads, s.sequence / parallel_.cp_size};
  }
  std::vector<TensorSpec> forward_work(const BatchShape& s, const Precision& p) const override {
    if (traits_.window > 0 && traits_.window < s.sequence)
      throw UsageError(
          fmt::format("ring attention has no sliding window: this model's of {} is shorter than the sequence of {} "
                      "tokens; use --mesh.context ulysses",
                      traits_.window, s.sequence));
    const int64_t bytes = p.on_gpu ? ops::attention_gpu_workspace_bytes(own_shape(s), p.compute, p.any_order)
                                   : std::max({ops::attention_workspace_bytes(own_shape(s), p.compute),
                                               ops::attention_block_workspace_bytes(block_shape(s, true), p.compute),
                                               ops::attention_block_workspace_bytes(block_shape(s, false), p.compute)});
    return with_dropout_keys(
        {{"attention", {bytes}, at::kByte}, {"kv", {2, tokens(s), 2 * widths_.kv_width()}, p.compute}}, traits_,
        tokens(s));
  }
  std::vector<TensorSpec> backward_work(const BatchShape& s, const Precision& p) const override {
    std::vector<TensorSpec> work = forward_work(s, p);
    work.resize(std::max<size_t>(work.size(), kDQ + 1));
    work[kDKv] = {"d_kv", {2, tokens(s), 2 * widths_.kv_width()}, p.state};
    work[kDQ] = {"d_q", {tokens(s), widths_.q_width()}, p.state};
    return work;
  }

  void forward(const at::Tensor& attended, const at::Tensor& lse, const at::Tensor& qkv, Scratch work,
               const BatchShape& s, const at::Tensor& /*starts*/, const Randomness& random,
               comm::Communicator* ranks) const override {
    const RingCall call = call_of(s, random, work);
    at::Tensor kv = work[kKv][0], other = work[kKv][1];
    kv.copy_(kv_columns(qkv));
    for (int step = 0; step < parallel_.cp_size; ++step) {
      const Hop hop = step + 1 < parallel_.cp_size ? pass(*ranks, kv, other) : Hop{};
      if (step == 0)
        ops::attention_forward(attended, lse, qkv, own_shape(call), call.workspace);
      else
        merge(attended, lse, qkv, kv, step, call);
      hop.wait();
      std::swap(kv, other);
    }
  }

  // Keys and values travel as in forward. Their gradients follow one step behind, each rank adds its part, and after cp
  // hops they are back at their rank.
  void backward(const at::Tensor& d_qkv, const at::Tensor& d_attended, const at::Tensor& attended,
                const at::Tensor& lse, const at::Tensor& qkv, Scratch work, const BatchShape& s,
                const at::Tensor& /*starts*/, const Randomness& random, comm::Communicator* ranks) const override {
    const RingCall call = call_of(s, random, work);
    at::Tensor kv = work[kKv][0], other = work[kKv][1], d_kv = work[kDKv][0], d_other = work[kDKv][1];
    const at::Tensor d_q = work[kDQ];
    kv.copy_(kv_columns(qkv));
    const Hop first = pass(*ranks, kv, other);
    ops::attention_backward(d_qkv, d_attended, attended, lse, qkv, own_shape(call), call.workspace);
    at::Tensor(d_q).copy_(q_columns(d_qkv));
    d_kv.copy_(kv_columns(d_qkv));
    first.wait();
    for (int step = 1; step < parallel_.cp_size; ++step) {
      std::swap(kv, other);
      const Hop gradients = pass(*ranks, d_kv, d_other);
      const Hop hop = step + 1 < parallel_.cp_size ? pass(*ranks, kv, other) : Hop{};
      gradients.wait();
      std::swap(d_kv, d_other);
      add_gradients(d_q, d_kv, d_attended, attended, lse, qkv, kv, step, call);
      hop.wait();
    }
    pass(*ranks, d_kv, d_other).wait();
    q_columns(d_qkv).copy_(d_q);
    kv_columns(d_qkv).copy_(d_other);
  }

  void forward_traffic(std::vector<TrafficRow>& rows, const BatchShape& s, const Precision& p) const override {
    for (int step = 1; step < parallel_.cp_size; ++step) hop_traffic(rows, s, p.compute);
  }
  void backward_traffic(std::vector<TrafficRow>& rows, const BatchShape& s, const Precision& p) const override {
    hop_traffic(rows, s, p.compute);
    for (int step = 1; step < parallel_.cp_size; ++step) {
      hop_traffic(rows, s, p.state);
      if (step + 1 < parallel_.cp_size) hop_traffic(rows, s, p.compute);
    }
    hop_traffic(rows, s, p.state);
  }

 private:
  int64_t tokens(const BatchShape& s) const { return local_rows(parallel_, s).tokens; }
  bool is_earlier(int step) const { return step <= parallel_.cp_rank; }  // the block at hand came from rank - step
  at::Tensor q_columns(const at::Tensor& rows) const { return rows.narrow(1, 0, widths_.q_width()); }
  at::Tensor kv_columns(const at::Tensor& rows) const {
    return rows.narrow(1, widths_.q_width(), 2 * widths_.kv_width());
  }

  Hop pass(comm::Communicator& ranks, const at::Tensor& mine, const at::Tensor& theirs) const {
    const int rank = parallel_.cp_rank, size = parallel_.cp_size;
    return {ranks.send(mine, (rank + 1) % size), ranks.receive(theirs, (rank + size - 1) % size)};  // in this order
  }
  void hop_traffic(std::vector<TrafficRow>& rows, const BatchShape& s, at::ScalarType dtype) const {
    for (const comm::Operation operation : {comm::Operation::send, comm::Operation::receive})
      rows.push_back({comm::UnitAxis::cp, operation, dtype, tokens(s) * 2 * widths_.kv_width()});
  }

  ops::AttentionShape own_shape(const BatchShape& s) const {
    return attention_shape(s.micro_batch, s.sequence / parallel_.cp_size, widths_, traits_);
  }
  ops::AttentionBlockShape block_shape(const BatchShape& s, bool earlier) const {
    const int64_t local = s.sequence / parallel_.cp_size;
    return {.batch = s.micro_batch,
            .queries = earlier ? local : local / 2,
            .keys = earlier ? local / 2 : local,
            .num_heads = widths_.heads,
            .num_kv_heads = widths_.kv_heads,
            .head_dim = widths_.head_dim,
            .scale = traits_.scale,
            .softcap = traits_.softcap};
  }
  at::Tensor by_sequence(const at::Tensor& rows, const BatchShape& s) const {
    return rows.unflatten(0, {s.micro_batch, s.sequence / parallel_.cp_size});
  }
  /// The queries that take part in a block, from rows [T, n] as [B, Q, n]; the keys likewise.
  at::Tensor queries(const at::Tensor& rows, bool earlier, const BatchShape& s) const {
    const at::Tensor all = by_sequence(rows, s);
    return earlier ? all : all.narrow(1, all.size(1) / 2, all.size(1) / 2);
  }
  at::Tensor keys(const at::Tensor& rows, bool earlier, const BatchShape& s) const {
    const at::Tensor all = by_sequence(rows, s);
    return earlier ? all.narrow(1, 0, all.size(1) / 2) : all;
  }
  at::Tensor query_statistics(const at::Tensor& lse, bool earlier) const {
    return earlier ? lse : lse.narrow(2, lse.size(2) / 2, lse.size(2) / 2);
  }

  RingCall call_of(const BatchShape& s, const Randomness& random, Scratch work) const {
    return {s, weight_dropout(traits_, random, work, s, parallel_), work[kRingWorkspace]};
  }
  /// The mask of a block whose keys came `step` hops: their rank has two chunks of each sequence.
  ops::AttentionDropout dropout_of(const RingCall& call, int step) const {
    const int64_t size = parallel_.cp_size, holder = (parallel_.cp_rank + size - step) % size,
                  chunk = call.shape.sequence / (2 * size);
    ops::AttentionDropout dropout = call.dropout;
    dropout.first_key = holder * chunk, dropout.split = chunk, dropout.later_key = (2 * size - 1 - holder) * chunk;
    return dropout;
  }
  ops::AttentionShape own_shape(const RingCall& call) const {
    ops::AttentionShape shape = own_shape(call.shape);
    shape.dropout = dropout_of(call, 0);
    return shape;
  }
  ops::AttentionBlockShape block_shape(const RingCall& call, int step) const {
    const bool earlier = is_earlier(step);
    ops::AttentionBlockShape shape = block_shape(call.shape, earlier);
    shape.dropout = dropout_of(call, step);
    if (shape.dropout.p > 0) shape.dropout.keys = queries(shape.dropout.keys, earlier, call.shape);
    return shape;
  }

  void merge(const at::Tensor& attended, const at::Tensor& lse, const at::Tensor& qkv, const at::Tensor& kv, int step,
             const RingCall& call) const {
    const bool earlier = is_earlier(step);
    const BatchShape& s = call.shape;
    ops::attention_block_forward(queries(attended, earlier, s), query_statistics(lse, earlier),
                                 queries(q_columns(qkv), earlier, s), keys(kv, earlier, s), block_shape(call, step),
                                 call.workspace);
  }
  void add_gradients(const at::Tensor& d_q, const at::Tensor& d_kv, const at::Tensor& d_attended,
                     const at::Tensor& attended, const at::Tensor& lse, const at::Tensor& qkv, const at::Tensor& kv,
                     int step, const RingCall& call) const {
    const bool earlier = is_earlier(step);
    const BatchShape& s = call.shape;
    ops::attention_block_backward(queries(d_q, earlier, s), keys(d_kv, earlier, s), queries(d_attended, earlier, s),
                                  queries(attended, earlier, s), query_statistics(lse, earlier),
                                  queries(q_columns(qkv), earlier, s), keys(kv, earlier, s), block_shape(call, step),
                                  call.workspace);
  }

  BlockWidths widths_;
  AttentionTraits traits_;
  Parallel parallel_;
};

}  // namespace

std::unique_ptr<ContextAttention> make_ring_attention(const BlockWidths& widths, const AttentionTraits& traits,
                                                      const Parallel& parallel) {
  return std::make_unique<RingAttention>(widths, traits, parallel);
}

}  // namespace trireme::model
