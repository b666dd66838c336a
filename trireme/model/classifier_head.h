// ClassifierHead: says which label each text has; the last unit of a model with labels. Its backward computes the loss
// too.
//
//   p = mean of some rows of norm(x)       v = act(P p + p0)       logits = C v + c0       loss = cross-entropy
//
// ModelConfig::classifier says which rows of a text are pooled, whether there is a layer P, and its activation. A model
// of post-norm blocks has no norm here. A row of the batch is one text and its padding: document_starts say where the
// text ends. The label of a text is the target at its first token; all other targets are -100. So counts of supervised
// tokens are counts of texts.
//
// Measures beside the loss: texts whose likeliest label is right, and for each label the texts that have it, those that
// get it, and those that have and get it.
//
// Tensor parallel: all of it is computed on every rank, because it reads few rows.
#pragma once

#include "trireme/model/adapters.h"
#include "trireme/model/config.h"
#include "trireme/model/layers.h"
#include "trireme/model/unit.h"

namespace trireme::model {

/// Refuses what encoders and classification heads are not built for, and encoders without labels.
/// Errors    UsageError
void check_classifier(const ModelConfig& config, const Precision& precision, const Parallel& parallel,
                      const Adapters& adapters);

class ClassifierHead : public Unit {
 public:
  ClassifierHead(const ModelConfig& config, const Parallel& parallel);
  std::string name() const override { return "head"; }
  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }
  UnitValues values(const BatchShape& shape, const Precision& precision) const override;
  void forward(UnitTensors& t) const override;
  void recompute(UnitTensors&, const std::vector<int>&) const override {}
  void backward(UnitTensors& t) const override;
  UnitTraffic traffic(const BatchShape& shape, const Precision& precision) const override;
  bool backward_includes_forward() const override { return true; }
  bool reads_documents() const override { return true; }
  std::vector<Measure> measures() const override;
  double forward_flops(const BatchShape& shape) const override;
  bool runs_on_gpu() const override { return false; }
  UnitValues generation_values(const GenerationShape& shape, const Precision& precision) const override;

  /// After forward(): the logits [micro_batch, num_labels] among the unit's work.
  static const at::Tensor& logits(const UnitTensors& t);

 private:
  bool has_pooler() const { return pooler_.weight >= 0; }
  bool sequence_parallel() const { return parallel_.tp_size > 1 && parallel_.sequence_parallel; }
  void find_texts(const UnitTensors& t) const;
  void read(const UnitTensors& t) const;
  void judge(const UnitTensors& t) const;
  void count(const UnitTensors& t) const;
  void backward_rows(const UnitTensors& t) const;

  ModelConfig config_;
  Parallel parallel_;
  Norm norm_;
  Product pooler_{.weight = -1}, labels_;
  std::vector<ParameterSpec> parameters_;
};

}  // namespace trireme::model
