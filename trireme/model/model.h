// Model: the ordered list of units of a configuration, and the flat groups that hold their parameters.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/model/adapters.h"
#include "trireme/model/config.h"
#include "trireme/model/objective.h"
#include "trireme/model/unit.h"

namespace trireme::model {

/// Where a unit finds one of its parameters: parameter `index` of group `group`.
struct ParameterPlace {
  int group = 0;
  int index = 0;
};

struct ParameterGroup {
  std::string name;                       ///< "embedding", "block 0", "head", "block 1.frozen"
  std::vector<ParameterSpec> parameters;
  bool trained = true;                    ///< false: frozen
  bool quantized = false;                 ///< frozen records of bytes: in blocks of a few bits, or packed
  bool companion = false;                 ///< of Grouping::matrices_apart: no hidden matrices
};

struct Model {
  ModelConfig config;
  Parallel parallel;
  Adapters adapters;                                       ///< with any, all other parameters are frozen
  std::vector<std::unique_ptr<Unit>> units;
  /// The units in generation, where ranks that divide a sequence in training (cp) write different texts, each alone.
  /// The same parameters in the same order. Empty: as `units`.
  std::vector<std::unique_ptr<Unit>> writers;
  std::vector<ParameterGroup> groups;                      ///< one per unit; a tied parameter has a group of its own
  std::vector<std::vector<ParameterPlace>> places;         ///< per unit, in the order of Unit::parameters()

  /// Parameters of the adapters, over all tensor-parallel ranks.
  int64_t num_adapter_parameters() const;
  /// Those of config.num_product_parameters() and of adapters that are frozen, over all tensor-parallel ranks.
  int64_t num_frozen_product_parameters() const;

  /// A unit as training or as generation computes it, and this rank's place on the axes inside it.
  const Unit& unit(int index, bool generates) const;
  Parallel parallel_of(bool generates) const;

  /// Groups that a unit reads, each once, ascending.
  std::vector<int> groups_of(int unit) const;

  Objective objective;
  std::shared_ptr<Scores> scores;  ///< of pairs; null: cross-entropy

  /// The tensors that engine::LoadBatch fills for one micro-batch: local tokens and targets, [T] int64. Targets of
  /// pairs are [PairInput::end, T]. Models of wrapped modules set own_inputs and own_targets instead.
  TensorSpec inputs(const BatchShape& shape, bool generates = false) const;
  TensorSpec targets(const BatchShape& shape, bool generates = false) const;
  std::optional<TensorSpec> own_inputs, own_targets;
  bool is_wrapped() const { return own_inputs.has_value(); }
  std::vector<std::string> rounded_statistics = {};  ///< buffers of wrapped modules in two bytes that forward changes
  std::vector<std::string> unreached = {};  ///< trained parameters of wrapped modules that no gradient of the example
                                            ///< reaches
};

/// How parameters are joined into flat groups. A group is sharded, gathered and reduced as one tensor, as in FSDP.
struct Grouping {
  WrapBy by = WrapBy::block;
  int64_t min_num_params = 0;  ///< consecutive units share a group until it holds this many
  std::vector<std::string> own_group = {};  ///< units with a group of their own ("block 3"); all others share one
                                            ///< group. Empty: every unit has its own
  bool trains = true;  ///< false: everything is frozen
  std::vector<std::string> frozen = {};  ///< names of units and parameters that are not trained; in separate groups
  /// Hidden matrices, which Muon updates, lie in other groups than the rest, which AdamW updates: all that embedding
  /// and head read, and whatever is no matrix.
  bool matrices_apart = false;
  bool operator==(const Grouping&) const = default;
};

/// Fills `groups` and `places` of a model whose `units` are complete; what was there is forgotten.
/// Errors    UsageError naming an unknown unit of own_group, or options that exclude each other
void group_parameters(Model& model, const Grouping& grouping);

/// Errors    UsageError if the configuration is invalid, or cannot be divided as `parallel` asks; if `adapters` names a
///           module that the model lacks; if `objective` is not built for it
Model build_model(const ModelConfig& config, const Precision& precision, const Parallel& parallel = {},
                  const Grouping& grouping = {}, const Adapters& adapters = {}, const Objective& objective = {});

/// Whether a parameter belongs to an adapter, by its name.
bool is_adapter(const std::string& parameter);
/// The module that a parameter belongs to: "model.norm" of "model.norm.weight"; of an adapter's, the adapted module.
std::string module_of(const std::string& parameter);

}  // namespace trireme::model
