// Model: the ordered list of units of a configuration, and the flat groups their parameters lie in.
#pragma once

#include <map>
#include <memory>
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
  std::vector<std::unique_ptr<Unit>> units;
  std::vector<ParameterGroup> groups;                      ///< one per unit; a tied parameter has a group of its own
  std::vector<std::vector<ParameterPlace>> places;         ///< per unit, in the order of Unit::parameters()

  /// Groups that a unit reads, each once, ascending.
  std::vector<int> groups_of(int unit) const;
};

/// Errors    UsageError when the configuration is invalid
Model build_model(const ModelConfig& config, const Precision& precision);

}  // namespace trireme::model
