#include "trireme/model/context_attention.h"

#include "trireme/ops/ops.h"

namespace trireme::model {
namespace {

class LocalAttention final : public ContextAttention {
 public:
  LocalAttention(const BlockWidths& widths, const AttentionTraits& traits) : widths_(widths), traits_(traits) {}

  std::vector<int64_t> qkv_shape(const BatchShape& s) const override { return {s.tokens(), widths_.qkv_width()}; }
  std::vector<int64_t> lse_shape(const BatchShape& s) const override {
    return {s.micro_batch, widths_.heads, s.sequence};
  }
  std::vector<TensorSpec> forward_work(const BatchShape& s, const Precision& p) const override {
    return {{"attention", {p.on_gpu ? 1 : ops::attention_workspace_bytes(shape(s), p.compute)}, at::kByte}};
  }
  std::vector<TensorSpec> backward_work(const BatchShape& s, const Precision& p) const override {
    return forward_work(s, p);
  }
  void forward(const at::Tensor& attended, const at::Tensor& lse, const at::Tensor& qkv, Scratch work,
               const BatchShape& s, const at::Tensor& starts, comm::Communicator*) const override {
    ops::attention_forward(attended, lse, qkv, shape(s), work[0], starts);
  }
  void backward(const at::Tensor& d_qkv, const at::Tensor& d_attended, const at::Tensor& attended,
                const at::Tensor& lse, const at::Tensor& qkv, Scratch work, const BatchShape& s,
                const at::Tensor& starts, comm::Communicator*) const override {
    ops::attention_backward(d_qkv, d_attended, attended, lse, qkv, shape(s), work[0], starts);
  }

 private:
  ops::AttentionShape shape(const BatchShape& s) const {
    return attention_shape(s.micro_batch, s.sequence, widths_, traits_);
  }

  BlockWidths widths_;
  AttentionTraits traits_;
};

}  // namespace

ops::AttentionShape attention_shape(int64_t batch, int64_t sequence, const BlockWidths& widths,
                                    const AttentionTraits& traits) {
  return {.batch = batch,
          .sequence = sequence,
          .num_heads = widths.heads,
          .num_kv_heads = widths.kv_heads,
          .head_dim = widths.head_dim,
          .scale = traits.scale,
          .window = traits.window,
          .softcap = traits.softcap,
          .bidirectional = traits.bidirectional};
}

std::unique_ptr<ContextAttention> make_context_attention(const BlockWidths& widths, const AttentionTraits& traits,
                                                         const Parallel& parallel) {
  if (parallel.cp_size == 1) return std::make_unique<LocalAttention>(widths, traits);
  return parallel.context == Context::ring ? make_ring_attention(widths, traits, parallel)
                                           : make_ulysses_attention(widths, traits, parallel);
}

}  // namespace trireme::model
