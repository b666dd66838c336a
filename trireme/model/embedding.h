// EmbeddingUnit: turns token ids into the first boundary; GPT-2 adds learned positions. BERT also adds the first row of
// a table of token types, and normalises the sum. The first unit of every model.
//
// Tensor parallel: a rank looks up the ids whose rows it holds and leaves zeros for all others. Only the first rank
// adds the positions and the type. So the sum over the ranks counts every row once, without rounding.
//
// An adapter adds scale * B A[:, id] to the table's row of an id. A is divided like the table, B is whole on every
// rank. PEFT drops nothing of an embedding's input, so an adapter's dropout does not count here. The model's own drops
// elements of the output.
#pragma once

#include "trireme/model/adapters.h"
#include "trireme/model/config.h"
#include "trireme/model/dropout.h"
#include "trireme/model/layers.h"
#include "trireme/model/unit.h"

namespace trireme::model {

/// A tensor-parallel rank's part of the vocabulary. All ranks hold equally many rows of the embedding and of the head.
/// So the last parts may reach beyond the vocabulary (padding); the rows there are zero and stay zero.
struct VocabularyPart {
  int64_t first = 0;  ///< the first id of this rank
  int64_t size = 0;  ///< equal on all ranks, padding included
  bool is_whole = true;  ///< all of it, without padding
};
/// cuBLAS is several times as slow if rows of logits do not begin at multiples of 16 bytes, so a GPU holds multiples of
/// 8 rows, on one rank too.
VocabularyPart vocabulary_part(const ModelConfig& config, const Parallel& parallel, bool on_gpu);

/// The embedding's table, which a tied head shares, or the matrix of an untied head.
ParameterSpec vocabulary_parameter(const std::string& name, const ModelConfig& config, const VocabularyPart& part);
/// Keeps it in panel order for the head's product, in few bits if the configuration wants it so.
/// Errors    UsageError if its rows are no whole blocks
void pack_for_head(ParameterSpec& table, const ModelConfig& config);
std::string embedding_table_name(Architecture architecture);
/// The name of an untied head's matrix.
std::string head_table_name(Architecture architecture);

class EmbeddingUnit : public Unit {
 public:
  /// Errors    UsageError: an adapter with magnitudes (DoRA)
  EmbeddingUnit(const ModelConfig& config, const Parallel& parallel, const VocabularyPart& part,
                const Adapters& adapters = {});
  std::string name() const override { return "embedding"; }
  const std::vector<ParameterSpec>& parameters() const override { return parameters_; }
  UnitValues values(const BatchShape& shape, const Precision& precision) const override;
  void forward(UnitTensors& t) const override;
  void recompute(UnitTensors& t, const std::vector<int>& which) const override;
  void backward(UnitTensors& t) const override;
  UnitTraffic traffic(const BatchShape& shape, const Precision& precision) const override;
  bool reads_in_backward(int index) const override {
    return (has_adapter() && index >= adapter_) || (norm_.present() && (index == norm_.weight || index == norm_.bias));
  }
  bool reads_documents() const override { return config_.learned_positions; }
  double forward_flops(const BatchShape&) const override { return 0; }

 private:
  double scale(at::ScalarType compute) const;
  void sum(UnitTensors& t, const at::Tensor& to) const;
  NormStatistics statistics(const UnitTensors& t) const;
  void backward_norm(UnitTensors& t) const;
  void write_type(const UnitTensors& t, const at::Tensor& dy) const;
  /// Row indices of the local tokens in the tables; computed in `work` where UnitTensors does not have them.
  struct Rows {
    at::Tensor ids, positions;
  };
  Rows rows(const UnitTensors& t) const;
  void to_local(const at::Tensor& ids, const at::Tensor& tokens) const;
  bool sequence_parallel() const { return parallel_.tp_size > 1 && parallel_.sequence_parallel; }
  bool own_positions() const { return parallel_.cp_size > 1 && config_.learned_positions; }
  bool has_adapter() const { return adapter_ >= 0; }
  void add_adapter(const AdapterSpec& spec, const std::string& module);
  void forward_adapter(UnitTensors& t, const at::Tensor& y, const at::Tensor& ids) const;
  void backward_adapter(UnitTensors& t, const at::Tensor& dy, const at::Tensor& ids) const;

  ModelConfig config_;
  Parallel parallel_;
  VocabularyPart part_;
  Dropout dropout_;
  Dropout noise_;  ///< NEFTune: p is its alpha
  void add_noise(const UnitTensors& t, const at::Tensor& y) const;
  std::vector<ParameterSpec> parameters_;
  int positions_ = -1;  ///< index of the table of learned positions; -1: there is none
  int types_ = -1;  ///< likewise: token types
  Norm norm_;
  int adapter_ = -1;  ///< index of the adapter's A; B follows. -1: there is none
  int64_t rank_ = 0;
  double adapter_scale_ = 1;
};

}  // namespace trireme::model
