// The weights of a model that is being trained, whole on rank 0 or on every rank, and with its adapters merged: what a
// sample reply and answers in 4 bits are computed with. They are collected one parameter at a time, because each rank
// has only its parts of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/adapt/resolve.h"
#include "trireme/comm/communicator.h"
#include "trireme/engine/engine.h"

namespace trireme::train {

/// The configuration of `model` with its adapters merged: head and embedding are two matrices if one of them is
/// changed.
model::ModelConfig merged_config(const model::ModelConfig& config, const model::Adapters& adapters);

/// The parameters that generate::Alone asks for, in its order.
std::vector<model::ParameterSpec> whole_parameters(const model::ModelConfig& merged, const model::Precision& precision);

/// Bytes that collecting takes on a rank that has the result, beside the weights themselves.
int64_t collecting_bytes(const std::vector<model::ParameterSpec>& whole, const model::Adapters& adapters);

/// What no merged model can express of these adapters: a bias of B without a bias in the base. Nothing if it can.
std::optional<std::string> unmergeable_bias(const model::ModelConfig& config, const model::Adapters& adapters);

/// Refuses adapters that no merged model can express; `why` begins the message. Errors    UsageError: a bias of B
/// without a bias in the base
void check_mergeable(const model::ModelConfig& config, const model::Adapters& adapters, std::string_view why);

class WholeWeights {
 public:
  enum class On { first_rank, every_rank };
  WholeWeights(engine::Engine& engine, const model::Model& model, comm::Communicator& world, On where = On::first_rank);

  /// Writes the parameter to `to` on rank 0, or on every rank; elsewhere `to` is undefined. Every rank must call, for
  /// the same parameters in the same order.
  ///
  /// Cost      sends the parameter in float64; nothing where every rank holds whole weights
  /// Numerics  what is collected has every bit. Merging computes in float64 and rounds once, so every mesh gives the
  ///           same bits
  void collect(const model::ParameterSpec& parameter, const at::Tensor& to);

 private:
  struct Part {
    int64_t begin;  // in the whole parameter
    at::Tensor values;
  };
  bool has_result() const { return on_every_rank_ || world_.rank() == 0; }
  void gather(const std::vector<Part>& parts, int64_t size, const at::Tensor& to);
  void add_records(const engine::GroupState& group);
  void widen(const std::string& name, const at::Tensor& to);
  at::Tensor gather(const std::string& name, const std::vector<int64_t>& shape);
  void merge_weight(const adapt::Module& module, const model::AdapterSpec& adapter, const at::Tensor& to);

  const model::Model& model_;
  comm::Communicator& world_;
  std::vector<adapt::Module> modules_;
  std::map<std::string, std::vector<Part>>
      parts_;  // of this rank, by name; of matrices in a few bits, bytes of records
  std::vector<std::map<std::string, ops::BlockPart>> records_;  // of each tensor-parallel rank, by name
  int tp_rank_ = 0;
  std::set<std::string> names_;  // of all parameters
  bool on_every_rank_ = false;
  bool is_whole_ = false;  // every rank holds all weights
};

}  // namespace trireme::train
