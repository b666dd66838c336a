// DecoderBlock: one transformer block for every architecture, configured by data (block_layout.h).
//
//   a = x + post1(O(attention(rope(head_norm(QKV(norm1(x)))))))        y = a + post2(down(act(up(norm2(a)))))
//
// ModelConfig decides which norms exist, what `act` is, which products have biases, the windows and the soft caps.
// Most models lack head_norm, post1 and post2; OLMo 2 has these, and lacks norm1 and norm2. GPT-2's weights are stored
// [in, out] (Conv1D), all others [out, in]. In GPT-NeoX the MLP reads norm2(x) instead of norm2(a). Granite multiplies
// the outputs of attention and MLP before it adds them. Encoders see the later tokens of a document too, and BERT's
// blocks normalise the sums (post-norm):
//
//   a = sum1(x + O(attention(QKV(x))))        y = sum2(a + down(act(up(a))))
//
// The backward pass is written by hand, without autograd. Forward saves x (the input boundary), a, the rotated q|k|v
// rows, the attention's output and log-sum-exp, the MLP's pre-activations, the inputs of head norms, post-norms and
// norms of sums, and the norms' statistics. It does not save the outputs of norms and of the activation: backward
// kernels read the inputs of these anyway, and compute the outputs again.
//
// Tensor parallel: QKV and up are column products (each rank has its heads and its part of the MLP); O and down are row
// products. tensor_parallel.h has their communication. Context parallel: see context_attention.h.
#pragma once

#include <optional>

#include "trireme/model/adapted_product.h"
#include "trireme/model/block_layout.h"
#include "trireme/model/context_attention.h"
#include "trireme/model/dropout.h"
#include "trireme/model/rotary_tables.h"
#include "trireme/model/tensor_parallel.h"
#include "trireme/ops/ops.h"

namespace trireme::model {

/// The activation of a plain MLP, if it is not GELU by tanh.
std::optional<ops::PlainActivation> plain_activation(const ModelConfig& config);

class DecoderBlock : public Unit {
 public:
  /// Block `layer` of the model; owns only its description. `rotary` is shared by the blocks. `float8`: operands of
  /// products are rounded to 8 bits.
  DecoderBlock(const ModelConfig& config, int64_t layer, const Parallel& parallel,
               std::shared_ptr<const RotaryTables> rotary, const Adapters& adapters = {}, bool float8 = false);

  std::string name() const override { return "block " + std::to_string(layer_); }
  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }
  std::string layer_of(int parameter) const override {
    return name() + (layout_.is_attention(parameter) ? ".attention" : ".mlp");
  }
  UnitValues values(const BatchShape& shape, const Precision& precision) const override;
  void forward(UnitTensors& t) const override;
  void recompute(UnitTensors& t, const std::vector<int>& which) const override;
  std::vector<std::string> recomputable() const override;
  void backward(UnitTensors& t) const override;
  bool splits_backward() const override { return true; }
  bool reads_documents() const override { return true; }
  void backward_input(UnitTensors& t) const override;
  void backward_weight(UnitTensors& t) const override;
  UnitTraffic traffic(const BatchShape& shape, const Precision& precision) const override;
  std::vector<TrafficRow> traffic_of_recompute(const BatchShape& shape, const Precision& precision,
                                               const std::vector<int>& which) const override;
  double forward_flops(const BatchShape& shape) const override;

  int64_t cache_width() const override { return widths_.kv_width(); }
  UnitValues generation_values(const GenerationShape& shape, const Precision& precision) const override;

 private:
  struct BackwardBuffers;
  /// Called with a product when both operands of its weight gradient exist; `normed`: x is this rank's rows of a norm.
  using OnProduct = std::function<void(const Product& product, const at::Tensor& dy, const at::Tensor& x, bool normed)>;

  void project(UnitTensors& t) const;
  void attend(UnitTensors& t) const;
  void add_attended(UnitTensors& t) const;
  void normalize_mid(UnitTensors& t) const;
  void expand(UnitTensors& t) const;
  void activate(const at::Tensor& y, const at::Tensor& hidden) const;
  void differentiate_activation(const at::Tensor& hidden, const at::Tensor& activated) const;
  void normalize_heads(UnitTensors& t, const at::Tensor& rows) const;
  void backward_head_norms(UnitTensors& t, const BackwardBuffers& buffers) const;
  /// y [rows,D] = norm(x), or x if there is no such norm.
  void normalize(const UnitTensors& t, const Norm& norm, const at::Tensor& y, const NormStatistics& statistics,
                 const at::Tensor& x) const;
  /// What norm2 reads: the input, or the input plus the attention's output.
  const at::Tensor& mlp_input(const UnitTensors& t) const;
  /// A branch times the model's multiplier, before it is added.
  void multiply(const at::Tensor& branch) const;
  /// The same, and dropout.
  bool adds_in_product(const UnitTensors& t) const;
  void finish_branch(const UnitTensors& t, const Dropout& dropout, const at::Tensor& branch) const;
  void reduce_branch(UnitTensors& t, const Product& product, const at::Tensor& x, const at::Tensor& to) const;
  at::Tensor finish_mlp(UnitTensors& t) const;
  void finish_sum(UnitTensors& t, const at::Tensor& y) const;
  /// The rotary table: a token's row is its entry in `t.position_ids`. If these are undefined, row i is for token i.
  RotaryTables::Table rotary_of(const UnitTensors& t) const {
    const at::Device device = t.input.device();
    const int64_t sequence = t.shape.sequence, cached = config_.longest_generation();
    if (t.new_tokens != nullptr) return rotary_->whole(cached, cached, device);
    return t.position_ids.defined() ? rotary_->whole(sequence, t.longest_text(), device)
                                    : rotary_->of(sequence, t.longest_text(), device);
  }
  void wide_norm_traffic(std::vector<TrafficRow>& rows, const BatchShape& shape, const Precision& precision) const;
  ContextAttention::Scratch attention_work(const UnitTensors& t) const;
  NormStatistics statistics1(const UnitTensors& t) const;
  NormStatistics statistics2(const UnitTensors& t) const;
  NormStatistics post_statistics(const UnitTensors& t, int rstd) const { return {at::Tensor(), t.saved[rstd]}; }

  void backward_steps(UnitTensors& t, const BackwardBuffers& buffers, const OnProduct& on_product) const;
  void write_weight(UnitTensors& t, const Product& product, const at::Tensor& dy, const at::Tensor& x) const;
  void write_adapters(UnitTensors& t, const Product& product, const at::Tensor& dy, const at::Tensor& x) const;
  void write_shared_heads(UnitTensors& t, const at::Tensor& dy, const at::Tensor& x) const;
  bool has_adapters() const { return num_adapter_ranks_ > 0; }
  /// y += the bias of the product and those of its adapters.
  void add_biases(const UnitTensors& t, const Product& product, const at::Tensor& y) const;
  /// Buffers of the adapters of `product`. Three of them are deferred if backward has two halves.
  AdapterBuffers adapter_buffers(const UnitTensors& t, const Product& product) const;
  void write_norms(UnitTensors& t, const at::Tensor& gradients) const;
  /// Of [q | k] gradients of the weights of query and key norms: part 0 or 1.
  at::Tensor head_norm_part(const at::Tensor& gradients, int part) const;
  void write_head_norms(UnitTensors& t, const at::Tensor& gradients) const;
  /// The norms whose weight is as wide as the boundary, in order.
  std::vector<Norm> norms() const;
  int64_t num_norm_vectors() const;
  bool has_post_norms() const { return layout_.post1.present(); }
  bool has_sum_norms() const { return layout_.sum1.present(); }
  bool keeps_mlp_out() const { return has_post_norms() || has_sum_norms(); }
  AttentionTraits attention_traits() const {
    return {.scale = config_.attention_scale,
            .softcap = config_.attention_softcap,
            .window = config_.window(layer_),
            .bidirectional = config_.bidirectional,
            .dropout = dropout_of("attention.weights", config_.dropout.attention),
            .first_head = widths_.heads * parallel_.tp_rank};
  }
  Dropout dropout_of(const std::string& what, double p) const { return block_dropout(layer_, what, p); }
  bool has_head_norms() const { return layout_.query_norm >= 0; }
  bool has_wide_norms() const { return config_.wide_query_key_norm; }
  bool has_multiplier() const { return config_.residual_multiplier != 1; }
  bool drops_branches() const { return config_.dropout.branches(); }
  int64_t whole_q_width() const { return config_.num_attention_heads * config_.head_dim; }
  int64_t whole_kv_width() const { return config_.num_key_value_heads * config_.head_dim; }
  bool shares_heads() const { return kv_head_sharers(config_, parallel_) > 1; }
  bool sequence_parallel() const { return parallel_.tp_size > 1 && parallel_.sequence_parallel; }

  ModelConfig config_;
  int64_t layer_;
  Parallel parallel_;
  BlockLayout layout_;
  std::vector<ParameterSpec> parameters_;
  AdapterParts adapter_parts_;
  int64_t num_adapter_ranks_ = 0;  ///< of all products
  BlockWidths widths_;
  Dropout attention_dropout_, mlp_dropout_;  ///< of the branches
  std::shared_ptr<const RotaryTables> rotary_;  ///< null for learned positions, and for blocks without positions
  std::unique_ptr<ContextAttention> attention_;
};

}  // namespace trireme::model
