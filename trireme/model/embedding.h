// EmbeddingUnit: token ids to the first boundary; GPT-2 adds learned positions. The first unit of every model.
#pragma once

#include "trireme/model/config.h"
#include "trireme/model/unit.h"

namespace trireme::model {

class EmbeddingUnit : public Unit {
 public:
  explicit EmbeddingUnit(const ModelConfig& config);
  std::string name() const override { return "embedding"; }
  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }
  UnitValues values(const BatchShape& shape, const Precision& precision) const override;
  void forward(UnitTensors& t) const override;
  void backward(UnitTensors& t) const override;
  bool reads_parameters_in_backward() const override { return false; }
  double forward_flops(const BatchShape&) const override { return 0; }

 private:
  ModelConfig config_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace trireme::model
