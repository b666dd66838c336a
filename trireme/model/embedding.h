// EmbeddingUnit: token ids to the first boundary; GPT-2 adds learned positions. The first unit of every model.
//
// Tensor parallel: a rank looks up the ids it holds and leaves rows of zeros for the others; the first rank adds the
// positions, so that the sum over the ranks has every row once, without rounding.
#pragma once

#include "trireme/model/config.h"
#include "trireme/model/unit.h"

namespace trireme::model {

class EmbeddingUnit : public Unit {
 public:
  EmbeddingUnit(const ModelConfig& config, const Parallel& parallel);
  std::string name() const override { return "embedding"; }
  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }
  UnitValues values(const BatchShape& shape, const Precision& precision) const override;
  void forward(UnitTensors& t) const override;
  void recompute(UnitTensors&, const std::vector<int>&) const override {}
  void backward(UnitTensors& t) const override;
  UnitTraffic traffic(const BatchShape& shape, const Precision& precision) const override;
  bool reads_parameters_in_backward() const override { return false; }
  bool reads_documents() const override { return config_.learned_positions; }
  double forward_flops(const BatchShape&) const override { return 0; }

  /// y [N,D] of ids [N] at position, position + 1, ..., for generation.
  void look_up(const at::Tensor& y, const at::Tensor& ids, int64_t position, const std::vector<at::Tensor>& parameters,
               comm::Communicator* tp) const;

 private:
  double scale(at::ScalarType compute) const;
  /// Ids and positions of the local tokens, as the operations want them: made in work where they are not given.
  struct Rows {
    at::Tensor ids, positions;
  };
  Rows rows(const UnitTensors& t, size_t& next_work) const;
  void to_local(const at::Tensor& ids, const at::Tensor& tokens) const;
  std::vector<TensorSpec> row_work(int64_t tokens) const;
  bool sequence_parallel() const { return parallel_.tp_size > 1 && parallel_.sequence_parallel; }
  bool own_positions() const { return parallel_.cp_size > 1 && parameters_.size() > 1; }

  ModelConfig config_;
  Parallel parallel_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace trireme::model
