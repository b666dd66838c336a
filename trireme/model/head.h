// HeadUnit: final norm, vocabulary product and cross-entropy loss; the last unit of every model. Its backward computes
// the loss too, in chunks of tokens. So training never holds the logits of a whole batch.
//
// Tensor parallel: a rank has the logits of its part of the vocabulary. For every token, ranks exchange the largest
// logit, the sum of exponentials and the target's logit, but not the other logits.
#pragma once

#include "trireme/model/config.h"
#include "trireme/model/layers.h"
#include "trireme/model/tensor_parallel.h"
#include "trireme/model/unit.h"

namespace trireme::model {

class HeadUnit : public Unit {
 public:
  HeadUnit(const ModelConfig& config, const Parallel& parallel);
  std::string name() const override { return "head"; }
  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }
  UnitValues values(const BatchShape& shape, const Precision& precision) const override;
  void forward(UnitTensors& t) const override;
  void recompute(UnitTensors&, const std::vector<int>&) const override {}
  void backward(UnitTensors& t) const override;
  UnitTraffic traffic(const BatchShape& shape, const Precision& precision) const override;
  bool backward_includes_forward() const override { return true; }
  double forward_flops(const BatchShape& shape) const override;

  /// Computes all logits, on every rank; x is unchanged.
  void decode(const DecodeTensors& t) const override;

 private:
  /// Where the gradients of the vocabulary product go; dx overwrites the product's input.
  struct Gradients {
    at::Tensor dx;
    ops::Gradient dw;
    at::Tensor dw_sum;
  };
  void normalize(const UnitTensors& t) const;
  void shard_loss(UnitTensors& t, const Gradients* gradients) const;
  int64_t chunk_rows(int64_t tokens) const;
  bool sequence_parallel() const { return parallel_.tp_size > 1 && parallel_.sequence_parallel; }

  ModelConfig config_;
  Parallel parallel_;
  Norm norm_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace trireme::model
