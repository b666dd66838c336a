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
    return with_dropout_keys(
        {{"attention", {p.on_gpu ? 1 : ops::attention_workspace_bytes(shape(s), p.compute)}, at::kByte}}, traits_,
        s.tokens());
  }
  std::vector<TensorSpec> backward_work(const BatchShape& s, const Precision& p) const override {
    if (!p.on_gpu) return forward_work(s, p);
    return {{"attention", {ops::attention_gpu_workspace_bytes(shape(s), p.compute, p.any_order)}, at::kByte}};
  }
  void forward(const at::Tensor& attended, const at::Tensor& lse, const at::Tensor& qkv, Scratch work,
               const BatchShape& s, const at::Tensor& starts, const Randomness& random,
               comm::Communicator*) const override {
    ops::attention_forward(attended, lse, qkv, dropping_shape(s, random, work), work[0], starts);
  }
  void backward(const at::Tensor& d_qkv, const at::Tensor& d_attended, const at::Tensor& attended,
                const at::Tensor& lse, const at::Tensor& qkv, Scratch work, const BatchShape& s,
                const at::Tensor& starts, const Randomness& random, comm::Communicator*) const override {
    ops::attention_backward(d_qkv, d_attended, attended, lse, qkv, dropping_shape(s, random, work), work[0], starts);
  }

 private:
  ops::AttentionShape shape(const BatchShape& s) const {
    return attention_shape(s.micro_batch, s.sequence, widths_, traits_);
  }
  ops::AttentionShape dropping_shape(const BatchShape& s, const Randomness& random, Scratch work) const {
    ops::AttentionShape drops = shape(s);
    drops.dropout = weight_dropout(traits_, random, work, s, {});
    return drops;
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

std::vector<TensorSpec> with_dropout_keys(std::vector<TensorSpec> work, const AttentionTraits& traits,
                                          int64_t queries) {
  if (traits.dropout.p == 0) return work;
  work.resize(ContextAttention::kNumSlots - 1);
  work.push_back({"attention dropout keys", {queries}, at::kInt});
  return work;
}

ops::AttentionDropout weight_dropout(const AttentionTraits& traits, const Randomness& random,
                                     ContextAttention::Scratch work, const BatchShape& shape,
                                     const Parallel& parallel) {
  if (!traits.dropout.drops(random)) return {};
  const at::Tensor& keys = work[ContextAttention::kNumSlots - 1];
  dropout_keys(keys, random, traits.dropout.module, shape, parallel);
  return {.p = traits.dropout.p, .keys = keys, .first_head = traits.first_head};
}

std::unique_ptr<ContextAttention> make_context_attention(const BlockWidths& widths, const AttentionTraits& traits,
                                                         const Parallel& parallel) {
  if (parallel.cp_size == 1) return std::make_unique<LocalAttention>(widths, traits);
  return parallel.context == Context::ring ? make_ring_attention(widths, traits, parallel)
                                           : make_ulysses_attention(widths, traits, parallel);
}

}  // namespace trireme::model
