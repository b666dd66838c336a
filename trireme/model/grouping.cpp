#include "trireme/model/grouping.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/model/decoder_block.h"

namespace trireme::model {
namespace {

/// Parameters that stay together, before groups are merged.
struct Set {
  std::string name;
  int64_t num_params = 0;
};

std::string set_name(const Unit& unit, size_t index, Grouping::By by, const std::string& before) {
  const std::vector<ParameterSpec>& specs = unit.parameters();
  if (by == Grouping::By::parameter) return specs[index].joined ? before : specs[index].name;
  const auto* block = dynamic_cast<const DecoderBlock*>(&unit);
  if (by == Grouping::By::block || block == nullptr) return unit.name();
  return unit.name() + (static_cast<int>(index) < block->first_mlp_parameter() ? ".attention" : ".mlp");
}

int64_t whole_numel(const ParameterSpec& p) {
  int64_t n = 1;
  for (int64_t s : p.whole_shape()) n *= s;
  return n;
}

void check(const Model& model, const Grouping& grouping) {
  if (grouping.own_group.empty()) return;
  if (grouping.by != Grouping::By::block || grouping.min_num_params > 0)
    throw UsageError(
        "units with a group of their own (own_group) go with one group a unit: leave the grouping at 'block' and "
        "min_num_params at 0");
  std::vector<std::string> names;
  for (const auto& unit : model.units) names.push_back(unit->name());
  for (const std::string& name : grouping.own_group) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const auto near = base::nearest(name, names);
    throw UsageError(
        fmt::format("wrap.units names '{}', which is no unit of this model{}; units are embedding, block 0 "
                    "to block {}, head",
                    name, near ? fmt::format(" (did you mean {}?)", *near) : "", model.config.num_hidden_layers - 1));
  }
}

/// Name of the group that each set goes to: sets that follow each other share one until it is large enough.
std::vector<std::string> merge(const std::vector<Set>& sets, int64_t min_num_params) {
  std::vector<std::string> groups;
  for (size_t first = 0, last; first < sets.size(); first = last) {
    int64_t num_params = 0;
    for (last = first; last < sets.size() && (last == first || num_params < min_num_params); ++last)
      num_params += sets[last].num_params;
    const std::string name = last - first == 1 ? sets[first].name : sets[first].name + ".." + sets[last - 1].name;
    groups.insert(groups.end(), last - first, name);
  }
  return groups;
}

}  // namespace

void group_parameters(Model& m, const Grouping& grouping) {
  check(m, grouping);
  std::map<std::string, int> readers;
  for (const auto& unit : m.units)
    for (const ParameterSpec& p : unit->parameters()) ++readers[p.name];

  std::vector<Set> sets;
  std::vector<std::vector<int>> set_of(m.units.size());  // per unit and parameter; -1: tied
  for (size_t u = 0; u < m.units.size(); ++u) {
    const Unit& unit = *m.units[u];
    const auto& own = grouping.own_group;
    const bool rest = !own.empty() && std::find(own.begin(), own.end(), unit.name()) == own.end();
    std::string before;
    for (size_t i = 0; i < unit.parameters().size(); ++i) {
      const ParameterSpec& p = unit.parameters()[i];
      before = rest ? "rest" : set_name(unit, i, grouping.by, before);
      if (readers[p.name] > 1) {
        set_of[u].push_back(-1);
        continue;
      }
      auto found = std::find_if(sets.begin(), sets.end(), [&](const Set& s) { return s.name == before; });
      if (found == sets.end()) found = sets.insert(sets.end(), {before});
      found->num_params += whole_numel(p);
      set_of[u].push_back(static_cast<int>(found - sets.begin()));
    }
  }

  const std::vector<std::string> group_names = merge(sets, grouping.min_num_params);
  std::map<std::string, int> group_number;
  std::map<std::string, ParameterPlace> seen;
  for (size_t u = 0; u < m.units.size(); ++u) {
    std::vector<ParameterPlace> places;
    for (size_t i = 0; i < set_of[u].size(); ++i) {
      const ParameterSpec& p = m.units[u]->parameters()[i];
      if (const auto found = seen.find(p.name); found != seen.end()) {
        places.push_back(found->second);
        continue;
      }
      const std::string name = set_of[u][i] < 0 ? "tied " + p.name : group_names[static_cast<size_t>(set_of[u][i])];
      const auto [number, is_new] = group_number.try_emplace(name, static_cast<int>(m.groups.size()));
      if (is_new) m.groups.push_back({name, {}});
      ParameterGroup& group = m.groups[static_cast<size_t>(number->second)];
      const ParameterPlace place{number->second, static_cast<int>(group.parameters.size())};
      group.parameters.push_back(p);
      seen[p.name] = place;
      places.push_back(place);
    }
    m.places.push_back(std::move(places));
  }
}

}  // namespace trireme::model
