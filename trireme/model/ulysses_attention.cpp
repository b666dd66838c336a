// Ulysses attention: ranks exchange tokens for heads, so that each rank has whole sequences of some heads. After the
// attention they exchange back. The q|k|v rows of the whole sequences are saved, so backward needs two exchanges: one
// for the output and its gradient, one for the gradient of q|k|v.
//
//   local rows     [B, S/cp, H]      --exchange-->     context rows   [B, S, H/cp]
//
// If there are fewer key/value heads than ranks, a rank gets a copy of the head that its queries need. The rank that
// the head came from sums the gradients of the copies. Source: Jacobs et al., DeepSpeed Ulysses (2023)
#include <ATen/ATen.h>

#include <algorithm>

#include "trireme/comm/communicator.h"
#include "trireme/model/context_attention.h"
#include "trireme/ops/ops.h"

namespace trireme::model {
namespace {

enum UlyssesWork { kUlyssesWorkspace, kSend, kReceive, kProjected, kContextRows = kProjected };

class UlyssesAttention final : public ContextAttention {
 public:
  UlyssesAttention(const BlockWidths& local, const AttentionTraits& traits, const Parallel& parallel)
      : local_(local), context_(local), traits_(traits), parallel_(parallel), ranks_(parallel.cp_size) {
    context_.heads = local.heads / ranks_;
    context_.kv_heads = std::max<int64_t>(1, local.kv_heads / ranks_);
    traits_.first_head += parallel.cp_rank * context_.heads;
  }

  std::vector<int64_t> qkv_shape(const BatchShape& s) const override { return {s.tokens(), context_.qkv_width()}; }
  std::vector<int64_t> lse_shape(const BatchShape& s) const override {
    return {s.micro_batch, context_.heads, s.sequence};
  }
  std::vector<TensorSpec> forward_work(const BatchShape& s, const Precision& p) const override {
    return work(s, p, s.tokens() * context_.qkv_width(), tokens(s) * local_.qkv_width());
  }
  std::vector<TensorSpec> backward_work(const BatchShape& s, const Precision& p) const override {
    const int64_t both = 2 * tokens(s) * local_.q_width();
    return work(s, p, std::max(both, s.tokens() * context_.qkv_width()), both);
  }

  at::Tensor projected(const at::Tensor&, Scratch work, const BatchShape& s) const override {
    return work[kProjected].view({tokens(s), local_.qkv_width()});
  }

  void share(const at::Tensor& qkv, Scratch work, const BatchShape& s, comm::Communicator* ranks) const override {
    const at::Tensor rows = projected(qkv, work, s),
                     send = take(work[kSend], {ranks_, tokens(s), context_.qkv_width()});
    for (int64_t rank = 0; rank < ranks_; ++rank)
      for (const auto& [ours, theirs] : columns(rank))
        send[rank].narrow(1, theirs.begin, theirs.size()).copy_(rows.narrow(1, ours.begin, ours.size()));
    exchange(*ranks, work[kReceive], send);
    to_context(qkv, take(work[kReceive], send.sizes()), s);
  }

  void forward(const at::Tensor& attended, const at::Tensor& lse, const at::Tensor& qkv, Scratch work,
               const BatchShape& s, const at::Tensor& starts, const Randomness& random,
               comm::Communicator* ranks) const override {
    const at::Tensor out = take(work[kProjected], {s.tokens(), context_.q_width()}),
                     send = take(work[kSend], {ranks_, tokens(s), context_.q_width()});
    ops::attention_forward(out, lse, qkv, dropping_shape(s, random, work), work[kUlyssesWorkspace], starts);
    from_context(send, out, s);
    exchange(*ranks, work[kReceive], send);
    attended.view({tokens(s), ranks_, context_.q_width()}).copy_(take(work[kReceive], send.sizes()).transpose(0, 1));
  }

  void backward(const at::Tensor& d_qkv, const at::Tensor& d_attended, const at::Tensor& attended,
                const at::Tensor& lse, const at::Tensor& qkv, Scratch work, const BatchShape& s,
                const at::Tensor& starts, const Randomness& random, comm::Communicator* ranks) const override {
    const int64_t t = tokens(s), width = context_.q_width();
    const at::Tensor both = take(work[kSend], {ranks_, 2, t, width}), received = take(work[kReceive], both.sizes()),
                     context = take(work[kContextRows], {2, s.tokens(), width});
    both.select(1, 0).copy_(d_attended.view({t, ranks_, width}).transpose(0, 1));
    both.select(1, 1).copy_(attended.view({t, ranks_, width}).transpose(0, 1));
    exchange(*ranks, received, both);
    for (int64_t i : {0, 1}) to_context(context[i], received.select(1, i), s);

    const at::Tensor d_context = take(work[kSend], {s.tokens(), context_.qkv_width()}),
                     send = take(work[kReceive], {ranks_, t, context_.qkv_width()});
    ops::attention_backward(d_context, context[0], context[1], lse, qkv, dropping_shape(s, random, work),
                            work[kUlyssesWorkspace], starts);
    from_context(send, d_context, s);
    exchange(*ranks, work[kSend], send);
    add_columns(d_qkv, take(work[kSend], send.sizes()));
  }

  void share_traffic(std::vector<TrafficRow>& rows, const BatchShape& s, const Precision& p) const override {
    row(rows, p, s.tokens() * context_.qkv_width());
  }
  void forward_traffic(std::vector<TrafficRow>& rows, const BatchShape& s, const Precision& p) const override {
    row(rows, p, s.tokens() * context_.q_width());
  }
  void backward_traffic(std::vector<TrafficRow>& rows, const BatchShape& s, const Precision& p) const override {
    row(rows, p, 2 * s.tokens() * context_.q_width());
    row(rows, p, s.tokens() * context_.qkv_width());
  }

 private:
  /// Columns of local rows, and where they lie in a rank's context rows.
  struct Columns {
    Piece ours, theirs;
  };

  int64_t tokens(const BatchShape& s) const { return local_rows(parallel_, s).tokens; }
  ops::AttentionShape shape(const BatchShape& s) const {
    return attention_shape(s.micro_batch, s.sequence, context_, traits_);
  }
  std::vector<TensorSpec> work(const BatchShape& s, const Precision& p, int64_t exchanged, int64_t rows) const {
    const int64_t bytes = p.on_gpu ? ops::attention_gpu_workspace_bytes(shape(s), p.compute, p.any_order)
                                   : ops::attention_workspace_bytes(shape(s), p.compute);
    return with_dropout_keys({{"attention", {bytes}, at::kByte},
                              {"send", {exchanged}, p.compute},
                              {"receive", {exchanged}, p.compute},
                              {"rows", {rows}, p.compute}},
                             traits_, s.tokens());
  }
  ops::AttentionShape dropping_shape(const BatchShape& s, const Randomness& random, Scratch work) const {
    ops::AttentionShape drops = shape(s);
    drops.dropout = weight_dropout(traits_, random, work, s, {});  // of whole sequences
    return drops;
  }
  static void row(std::vector<TrafficRow>& rows, const Precision& p, int64_t elements) {
    rows.push_back({comm::UnitAxis::cp, comm::Operation::all_to_all, p.compute, elements});
  }
  /// The beginning of a buffer, as a tensor of that shape.
  static at::Tensor take(const at::Tensor& buffer, at::IntArrayRef shape) {
    return buffer.narrow(0, 0, c10::multiply_integers(shape)).view(shape);
  }
  void exchange(comm::Communicator& ranks, const at::Tensor& output, const at::Tensor& input) const {
    const std::vector<int64_t> counts(static_cast<size_t>(ranks_), input.numel() / ranks_);
    ranks.all_to_all(output.view(-1).narrow(0, 0, input.numel()), input, counts, counts)->wait();
  }

  std::vector<Columns> columns(int64_t rank) const {
    const int64_t q = context_.q_width(), kv = context_.kv_width(), first_q = rank * q,
                  first_kv = local_.q_width() + rank * local_.kv_heads / ranks_ * local_.head_dim;
    return {{{first_q, first_q + q}, {0, q}},
            {{first_kv, first_kv + kv}, {q, q + kv}},
            {{first_kv + local_.kv_width(), first_kv + local_.kv_width() + kv}, {q + kv, q + 2 * kv}}};
  }
  /// Puts the parts from all ranks [cp, T, R'] into local rows; sums copies of a key/value head.
  void add_columns(const at::Tensor& rows, const at::Tensor& parts) const {
    for (int64_t rank = 0; rank < ranks_; ++rank) {
      const bool repeats = rank > 0 && columns(rank)[1].ours == columns(rank - 1)[1].ours;
      for (const auto& [ours, theirs] : columns(rank)) {
        at::Tensor to = rows.narrow(1, ours.begin, ours.size());
        const at::Tensor from = parts[rank].narrow(1, theirs.begin, theirs.size());
        const bool adds = repeats && theirs.begin > 0;  // a key/value head that the rank before had too
        adds ? to.add_(from) : to.copy_(from);
      }
    }
  }
  /// parts [cp, T, n], the tokens of each rank -> rows [B S, n]; and back.
  void to_context(const at::Tensor& rows, const at::Tensor& parts, const BatchShape& s) const {
    const int64_t local = s.sequence / ranks_;
    rows.view({s.micro_batch, ranks_, local, rows.size(1)})
        .copy_(parts.unflatten(1, {s.micro_batch, local}).transpose(0, 1));
  }
  void from_context(const at::Tensor& parts, const at::Tensor& rows, const BatchShape& s) const {
    const int64_t local = s.sequence / ranks_;
    parts.view({ranks_, s.micro_batch, local, rows.size(1)})
        .copy_(rows.view({s.micro_batch, ranks_, local, rows.size(1)}).transpose(0, 1));
  }

  BlockWidths local_, context_;
  AttentionTraits traits_;
  Parallel parallel_;
  int64_t ranks_;
};

}  // namespace

std::unique_ptr<ContextAttention> make_ulysses_attention(const BlockWidths& widths, const AttentionTraits& traits,
                                                         const Parallel& parallel) {
  return std::make_unique<UlyssesAttention>(widths, traits, parallel);
}

}  // namespace trireme::model
