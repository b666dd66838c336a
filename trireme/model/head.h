// HeadUnit: final norm, vocabulary product and cross-entropy loss; the last unit of every model. Its backward computes
// the loss too, in chunks of tokens. So training never holds the logits of a whole batch.
//
// Tensor parallel: a rank has the logits of its part of the vocabulary. For every token, ranks exchange the largest
// logit, the sum of exponentials and the target's logit, but not the other logits.
//
// Other losses (objective.h) take the same way in chunks. What needs one token only gives each row of logits its own
// weights. Losses of pairs need sums over replies first: one pass over the chunks for the log-probabilities, of which
// the head keeps three numbers a token, one sum over context-parallel ranks, and a second pass for the gradients. Rows
// without a target (prompts, padding) have no logits, unless tensor-parallel ranks exchange numbers of all rows. Losses
// of policies need a first pass only if ratios are those of whole answers.
//
// An adapter belongs to the head alone ("lm_head"), even if its matrix is the embedding's. Its gradients are summed
// over the chunks in the statistics dtype.
#pragma once

#include <memory>

#include "trireme/model/adapted_product.h"
#include "trireme/model/adapters.h"
#include "trireme/model/config.h"
#include "trireme/model/embedding.h"
#include "trireme/model/layers.h"
#include "trireme/model/objective.h"
#include "trireme/model/tensor_parallel.h"
#include "trireme/model/unit.h"

namespace trireme::model {

/// Errors    UsageError if the objective is not built for this model
void check_objective(const ModelConfig& config, const Precision& precision, const Objective& objective);

class HeadUnit : public Unit {
 public:
  /// `scores` is needed for pairs and policies.
  HeadUnit(const ModelConfig& config, const Parallel& parallel, const VocabularyPart& part,
           const Adapters& adapters = {}, const Objective& objective = {},
           std::shared_ptr<const Scores> scores = nullptr);
  std::string name() const override { return "head"; }
  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }
  UnitValues values(const BatchShape& shape, const Precision& precision) const override;
  void forward(UnitTensors& t) const override;
  void recompute(UnitTensors&, const std::vector<int>&) const override {}
  void backward(UnitTensors& t) const override;
  UnitTraffic traffic(const BatchShape& shape, const Precision& precision) const override;
  bool backward_includes_forward() const override { return true; }
  bool reads_documents() const override { return objective_.sums_documents(); }
  std::vector<Measure> measures() const override;
  double forward_flops(const BatchShape& shape) const override;

  /// Generation: the output is the logits of some rows, whole on every rank.
  UnitValues generation_values(const GenerationShape& shape, const Precision& precision) const override;
  std::vector<TrafficRow> generation_traffic(const GenerationShape& shape, const Precision& precision) const override;

 private:
  /// Where the gradients of the vocabulary product go; dx overwrites the product's input.
  struct Gradients {
    at::Tensor dx;
    ops::Gradient dw;
    at::Tensor dw_sum;
    UnitTensors adapter;  ///< the unit's tensors, with sums over chunks as the gradients of the adapter's parameters
  };
  void normalize(const UnitTensors& t) const;
  void divide_logits(const at::Tensor& rows) const;
  /// Calls body(chunk) for all chunks of the first `rows` rows.
  template <class Body>
  void for_chunks(const UnitTensors& t, int64_t rows, const Body& body) const;
  struct Chunk;
  void compute_logits(UnitTensors& t, const Chunk& chunk) const;
  void sum_rows(UnitTensors& t, const Chunk& chunk) const;
  void differentiate(UnitTensors& t, const Gradients& gradients, const Chunk& chunk) const;
  void chunk_loss(UnitTensors& t, const Gradients* gradients) const;
  void write_logits(UnitTensors& t) const;  // head_generation.cpp
  // head_objective.cpp
  void declare_objective(UnitValues& values, const BatchShape& shape, int64_t tokens, int64_t rows,
                         const Precision& precision) const;
  void pair_loss(UnitTensors& t, const Gradients* gradients) const;
  void judge_tokens(UnitTensors& t, const Chunk& chunk) const;
  int64_t close_ranks(UnitTensors& t) const;
  void open_ranks(UnitTensors& t, int64_t rows) const;
  void sum_replies(UnitTensors& t, int64_t rows) const;
  void judge_pairs(UnitTensors& t) const;
  // head_policy.cpp
  void policy_loss(UnitTensors& t, const Gradients* gradients) const;
  void sum_answers(UnitTensors& t, const Chunk& chunk) const;
  void judge_answers(UnitTensors& t, const Chunk& chunk) const;
  void weigh_tokens(UnitTensors& t, int64_t rows) const;
  void chunk_backward(UnitTensors& t, const Gradients& gradients, int64_t first, const at::Tensor& x,
                      const at::Tensor& d_logits) const;
  void write_adapter(UnitTensors& t, const Gradients& gradients) const;
  /// The unit's tensors for chunk_backward, and sums that are 0.
  UnitTensors adapter_sums(const UnitTensors& t) const;
  AdapterBuffers adapter_buffers(const UnitTensors& t, int64_t first_row) const;
  void declare_adapter(UnitValues& values, int64_t tokens, int64_t rows, const Precision& precision) const;
  bool has_adapter() const { return !product_.adapters.empty(); }
  /// Whether the loss is computed here in chunks, and not by one call (ops::cross_entropy_forward_backward).
  bool in_chunks() const { return !part_.is_whole || has_adapter() || !objective_.is_plain(); }
  /// Numbers that sum_rows() keeps of a row: the largest logit, the sum of exponentials, the target's logit, and with
  /// label smoothing the sum of logits.
  int64_t sums_of_row() const { return objective_.label_smoothing > 0 ? 4 : 3; }
  /// The loss divides the logits by it (ops::cross_entropy_shard_max and its neighbours).
  double temperature() const { return objective_.policy ? objective_.policy->temperature : 1; }
  int64_t chunk_rows(int64_t tokens, const Precision& p) const;
  bool sequence_parallel() const { return parallel_.tp_size > 1 && parallel_.sequence_parallel; }

  ModelConfig config_;
  Parallel parallel_;
  VocabularyPart part_;
  Norm norm_;
  Product product_;
  std::vector<ParameterSpec> parameters_;
  Objective objective_;
  std::shared_ptr<const Scores> scores_;
};

}  // namespace trireme::model
