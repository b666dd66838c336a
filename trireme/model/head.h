// HeadUnit: final norm, vocabulary product and cross-entropy loss. The last unit of every model. Its backward
// computes the loss too, chunk by chunk, so that training never holds the logits of a batch.
#pragma once

#include "trireme/model/config.h"
#include "trireme/model/unit.h"

namespace trireme::model {

class HeadUnit : public Unit {
 public:
  explicit HeadUnit(const ModelConfig& config);
  std::string name() const override { return "head"; }
  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }
  UnitValues values(const BatchShape& shape, const Precision& precision) const override;
  void forward(UnitTensors& t) const override;
  void backward(UnitTensors& t) const override;
  bool backward_includes_forward() const override { return true; }
  double forward_flops(const BatchShape& shape) const override;

  /// logits [B,V] of x [B,D] (the boundary before the head), for generation.
  void logits(const at::Tensor& out, const at::Tensor& x, const std::vector<at::Tensor>& parameters) const;

 private:
  void normalize(const at::Tensor& y, const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& x,
                 const std::vector<at::Tensor>& parameters) const;

  ModelConfig config_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace trireme::model
