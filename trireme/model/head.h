// HeadUnit: final norm, vocabulary product and cross-entropy loss. The last unit of every model. Its backward
// computes the loss too, chunk by chunk, so that training never holds the logits of a batch.
//
// Tensor parallel: a rank has the logits of its part of the vocabulary; the ranks tell each other the largest logit,
// the sum of exponentials and the target's logit of every token, not the logits.
#pragma once

#include "trireme/model/config.h"
#include "trireme/model/norms.h"
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

  /// logits [N,V] of x [N,D] (the boundary before the head), for generation; all of them on every rank.
  void logits(const at::Tensor& out, const at::Tensor& x, const std::vector<at::Tensor>& parameters,
              comm::Communicator* tp) const;

 private:
  /// Where the gradients of the vocabulary product go; dx is the product's input, overwritten.
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
