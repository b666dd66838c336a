// Model: the ordered list of units of a configuration, and the flat groups their parameters lie in.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/model/config.h"
#include "trireme/model/unit.h"

namespace trireme::model {

/// Where a unit finds one of its parameters: number `index` of group `group`.
struct ParameterPlace {
  int group = 0;
  int index = 0;
};

struct ParameterGroup {
  std::string name;                       ///< "embedding", "block 0", "head"
  std::vector<ParameterSpec> parameters;
};

struct Model {
  ModelConfig config;
  Parallel parallel;
  std::vector<std::unique_ptr<Unit>> units;
  std::vector<ParameterGroup> groups;                      ///< one per unit; a tied parameter has a group of its own
  std::vector<std::vector<ParameterPlace>> places;         ///< per unit, in the order of Unit::parameters()

  /// Groups that a unit reads, each once, ascending.
  std::vector<int> groups_of(int unit) const;

  /// What LoadBatch fills for one micro-batch: local tokens and targets, [T] int64, unless the model's units want
  /// something else (own_inputs, own_targets).
  TensorSpec inputs(const BatchShape& shape) const;
  TensorSpec targets(const BatchShape& shape) const;
  std::optional<TensorSpec> own_inputs, own_targets;
};

/// How parameters are gathered into flat groups: the pieces in which they are sharded, gathered and reduced.
struct Grouping {
  enum class By {
    block,       ///< one group a unit
    layer,       ///< attention and MLP of a block apart
    parameter,   ///< one group a parameter; those that are one matrix to a product stay together
  };
  By by = By::block;
  int64_t min_num_params = 0;              ///< units that follow each other share a group until it holds so many
  std::vector<std::string> own_group = {}; ///< units with a group of their own ("block 3"); the others share one.
                                           ///< Empty: every unit
  bool operator==(const Grouping&) const = default;
};

/// Errors    UsageError when the configuration is invalid, or cannot be divided as `parallel` asks
Model build_model(const ModelConfig& config, const Precision& precision, const Parallel& parallel = {},
                  const Grouping& grouping = {});

}  // namespace trireme::model
