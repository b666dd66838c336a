// DecoderBlock: one transformer block for every architecture, configured by data (block_layout.h).
//
//   a = x + post1(O(attention(rope(head_norm(QKV(norm1(x)))))))        y = a + post2(down(act(up(norm2(a)))))
//
// Which norms there are, what act is, which products have biases, windows, soft caps: ModelConfig. head_norm, post1
// and post2 are absent in most. GPT-2's weights are stored [in, out] (Conv1D), all others' [out, in].
// The backward pass is explicit. What is saved is x (the input boundary), a, the rotated q|k|v rows, the
// attention's output and log-sum-exp, the MLP's pre-activations, what head norms and post-norms read, and the norms'
// statistics; norm outputs and the activated product are emitted again by the backward kernels that read their inputs
// anyway.
//
// Tensor parallel: QKV and up are column products (each rank its heads and its part of the MLP), O and down row
// products; what they say to each other is in tensor_parallel.h. Context parallel: context_attention.h.
#pragma once

#include "trireme/model/block_layout.h"
#include "trireme/model/context_attention.h"
#include "trireme/model/local_rows.h"
#include "trireme/model/rotary_tables.h"
#include "trireme/model/tensor_parallel.h"

namespace trireme::model {

class DecoderBlock : public Unit {
 public:
  /// Block `layer` of the model; owns only its description. `rotary` is shared by the blocks.
  DecoderBlock(const ModelConfig& config, int64_t layer, const Parallel& parallel,
               std::shared_ptr<const RotaryTables> rotary);

  std::string name() const override { return "block " + std::to_string(layer_); }
  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }
  /// Number in parameters() from which on they belong to the MLP half.
  int first_mlp_parameter() const { return layout_.norm2.weight; }
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

  /// Forward for new tokens against a key/value cache, for generation. x [N,D] holds tokens that follow each other from
  /// `position` on and is replaced by the block's output; k_cache, v_cache [S_max, K*d], with those before.
  void decode(const at::Tensor& x, const std::vector<at::Tensor>& parameters, const at::Tensor& k_cache,
              const at::Tensor& v_cache, int64_t position, comm::Communicator* tp) const;

 private:
  struct BackwardBuffers;
  /// Told of a weight product once both operands are there; `normed` where x is a norm's output: this rank's rows.
  using OnProduct = std::function<void(const Product& product, const at::Tensor& dy, const at::Tensor& x, bool normed)>;

  void project(UnitTensors& t) const;
  void attend(UnitTensors& t) const;
  void add_attended(UnitTensors& t) const;
  void expand(UnitTensors& t) const;
  void activate(const at::Tensor& y, const at::Tensor& hidden) const;
  void differentiate_activation(const at::Tensor& hidden, const at::Tensor& activated) const;
  void normalize_heads(UnitTensors& t, const at::Tensor& rows) const;
  void reduce_branch(UnitTensors& t, const Product& product, const at::Tensor& x, const at::Tensor& to) const;
  at::Tensor finish_mlp(UnitTensors& t) const;
  /// Of the local tokens' positions; their numbers are `t.position_ids`, where these are undefined the row's own.
  RotaryTables::Table rotary_of(const UnitTensors& t) const {
    const at::Device device = t.saved[0].device();
    return t.position_ids.defined() ? rotary_->whole(t.shape.sequence, device) : rotary_->of(t.shape.sequence, device);
  }
  ContextAttention::Scratch attention_work(const UnitTensors& t, size_t first) const;
  NormStatistics statistics1(const UnitTensors& t) const;
  NormStatistics statistics2(const UnitTensors& t) const;
  NormStatistics post_statistics(const UnitTensors& t, int place) const { return {at::Tensor(), t.saved[place]}; }

  void backward_steps(UnitTensors& t, const BackwardBuffers& buffers, const OnProduct& on_product) const;
  void write_weight(UnitTensors& t, const Product& product, const at::Tensor& dy, const at::Tensor& x,
                    ContextAttention::Scratch all_heads) const;
  void write_shared_heads(UnitTensors& t, const at::Tensor& dy, const at::Tensor& x,
                          ContextAttention::Scratch all_heads) const;
  void write_norms(UnitTensors& t, const at::Tensor& gradients) const;
  void write_head_norms(UnitTensors& t, const at::Tensor& gradients) const;
  std::vector<TensorSpec> input_half_work(const BatchShape& shape, const Precision& precision) const;
  std::vector<TensorSpec> weight_half_work(const Precision& precision) const;
  TensorSpec head_norm_gradients(const Precision& precision) const;
  /// Those with a weight as wide as the boundary, in their order.
  std::vector<Norm> norms() const;
  int64_t num_norm_vectors() const;
  bool has_post_norms() const { return layout_.post1.present(); }
  AttentionTraits attention_traits() const {
    return {.scale = config_.attention_scale, .softcap = config_.attention_softcap, .window = config_.window(layer_)};
  }
  bool has_head_norms() const { return layout_.query_norm >= 0; }
  bool shares_heads() const { return kv_head_sharers(config_, parallel_) > 1; }
  bool sequence_parallel() const { return parallel_.tp_size > 1 && parallel_.sequence_parallel; }

  /// Numbers in `saved` of what not every block has; -1: nor does this one.
  struct SavedPlaces {
    int mean1 = -1, mean2 = -1, raw_qk = -1, rstd_qk = -1, attention_out = -1, rstd_post1 = -1, mlp_out = -1,
        rstd_post2 = -1;
  };

  ModelConfig config_;
  int64_t layer_;
  Parallel parallel_;
  BlockLayout layout_;
  std::vector<ParameterSpec> parameters_;
  BlockWidths widths_;
  SavedPlaces places_;
  std::shared_ptr<const RotaryTables> rotary_;  ///< null for learned positions
  std::unique_ptr<ContextAttention> attention_;
};

}  // namespace trireme::model
