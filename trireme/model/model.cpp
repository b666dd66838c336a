#include "trireme/model/model.h"

#include <algorithm>

#include "trireme/model/decoder_block.h"
#include "trireme/model/embedding.h"
#include "trireme/model/grouping.h"
#include "trireme/model/head.h"

namespace trireme::model {

std::vector<int> Model::groups_of(int unit) const {
  std::vector<int> groups;
  for (const ParameterPlace& place : places[unit])
    if (std::find(groups.begin(), groups.end(), place.group) == groups.end()) groups.push_back(place.group);
  std::sort(groups.begin(), groups.end());
  return groups;
}

TensorSpec Model::inputs(const BatchShape& shape) const {
  return own_inputs.value_or(TensorSpec{"tokens", {local_rows(parallel, shape).tokens}, at::kLong});
}

TensorSpec Model::targets(const BatchShape& shape) const {
  return own_targets.value_or(TensorSpec{"targets", {local_rows(parallel, shape).tokens}, at::kLong});
}

Model build_model(const ModelConfig& config, const Precision& precision, const Parallel& parallel,
                  const Grouping& grouping) {
  config.validate();
  check_divisible(config, parallel);
  Model m;
  m.config = config;
  m.parallel = parallel;
  using Tables = std::shared_ptr<const RotaryTables>;
  Tables rotary, local;  // of blocks with a window, where these have frequencies of their own
  if (!config.learned_positions)
    rotary = std::make_shared<const RotaryTables>(config, precision.state, parallel, RotaryTables::Blocks::all);
  if (config.rope_local_theta > 0)
    local = std::make_shared<const RotaryTables>(config, precision.state, parallel, RotaryTables::Blocks::windowed);
  m.units.push_back(std::make_unique<EmbeddingUnit>(config, parallel));
  for (int64_t i = 0; i < config.num_hidden_layers; ++i)
    m.units.push_back(
        std::make_unique<DecoderBlock>(config, i, parallel, local && config.window(i) > 0 ? local : rotary));
  m.units.push_back(std::make_unique<HeadUnit>(config, parallel));
  group_parameters(m, grouping);
  return m;
}

}  // namespace trireme::model
