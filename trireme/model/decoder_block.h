// DecoderBlock: one transformer block for every architecture, configured by data.
//
//   a = x + O(attention(rope(QKV(norm1(x)))))        y = a + down(act(up(norm2(a))))
//
// Llama: RMSNorm, rotary positions, grouped heads, gated SiLU MLP, no biases, weights stored [out, in].
// GPT-2: LayerNorm, no rotary, tanh-GELU MLP, biases, weights stored [in, out] (Conv1D).
// The backward pass is explicit. What is saved is x (the input boundary), a, the rotated q|k|v rows, the
// attention's output and log-sum-exp, the MLP's pre-activations and the norms' statistics; norm outputs and the
// activated product are emitted again by the backward kernels that read their inputs anyway.
#pragma once

#include "trireme/model/config.h"
#include "trireme/model/unit.h"
#include "trireme/ops/ops.h"

namespace trireme::model {

class DecoderBlock : public Unit {
 public:
  /// Block `layer` of the model; owns only its description and, per sequence length, a rotary table.
  DecoderBlock(const ModelConfig& config, int64_t layer, at::ScalarType state_dtype);

  std::string name() const override { return "block " + std::to_string(layer_); }
  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }
  UnitValues values(const BatchShape& shape, const Precision& precision) const override;
  void forward(UnitTensors& t) const override;
  void recompute(UnitTensors& t) const override;
  void backward(UnitTensors& t) const override;
  double forward_flops(const BatchShape& shape) const override;

  /// Forward for new tokens against a key/value cache, for generation. x [B,D] holds one token a row and is
  /// replaced by the block's output; k_cache, v_cache [B, S_max, K*d]; `position` is the token's.
  void decode(const at::Tensor& x, const std::vector<at::Tensor>& parameters, const at::Tensor& k_cache,
              const at::Tensor& v_cache, int64_t position) const;

 private:
  void forward_to_activation(UnitTensors& t) const;
  ops::AttentionShape attention_shape(const BatchShape& shape) const;
  int64_t qkv_width() const;

  ModelConfig config_;
  int64_t layer_;
  std::vector<ParameterSpec> parameters_;
  at::Tensor cosine_, sine_;  ///< [max positions, d/2]; undefined for learned positions
};

}  // namespace trireme::model
