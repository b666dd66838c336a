#include "trireme/model/model.h"

#include <algorithm>

#include "trireme/model/decoder_block.h"
#include "trireme/model/embedding.h"
#include "trireme/model/head.h"

namespace trireme::model {

std::vector<int> Model::groups_of(int unit) const {
  std::vector<int> groups;
  for (const ParameterPlace& place : places[unit])
    if (std::find(groups.begin(), groups.end(), place.group) == groups.end()) groups.push_back(place.group);
  std::sort(groups.begin(), groups.end());
  return groups;
}

Model build_model(const ModelConfig& config, const Precision& precision) {
  config.validate();
  Model m;
  m.config = config;
  m.units.push_back(std::make_unique<EmbeddingUnit>(config));
  for (int64_t i = 0; i < config.num_hidden_layers; ++i)
    m.units.push_back(std::make_unique<DecoderBlock>(config, i, precision.state));
  m.units.push_back(std::make_unique<HeadUnit>(config));

  std::map<std::string, ParameterPlace> seen;
  std::map<std::string, int> readers;
  for (const auto& unit : m.units)
    for (const ParameterSpec& p : unit->parameters()) ++readers[p.name];
  for (const auto& unit : m.units) {
    int own_group = -1;
    std::vector<ParameterPlace> places;
    for (const ParameterSpec& p : unit->parameters()) {
      if (auto found = seen.find(p.name); found != seen.end()) {
        places.push_back(found->second);
        continue;
      }
      const bool tied = readers[p.name] > 1;
      int group = own_group;
      if (tied || own_group < 0) {
        group = static_cast<int>(m.groups.size());
        m.groups.push_back({tied ? "tied " + p.name : unit->name(), {}});
        if (!tied) own_group = group;
      }
      ParameterPlace place{group, static_cast<int>(m.groups[group].parameters.size())};
      m.groups[group].parameters.push_back(p);
      seen[p.name] = place;
      places.push_back(place);
    }
    m.places.push_back(std::move(places));
  }
  return m;
}

}  // namespace trireme::model
