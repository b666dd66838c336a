#include "trireme/model/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/model/classifier_head.h"
#include "trireme/model/decoder_block.h"
#include "trireme/model/embedding.h"
#include "trireme/model/float8.h"
#include "trireme/model/free_block.h"
#include "trireme/model/head.h"
#include "trireme/model/quantized.h"

namespace trireme::model {

std::vector<int> Model::groups_of(int unit) const {
  std::vector<int> groups;
  for (const ParameterPlace& place : places[unit])
    if (std::find(groups.begin(), groups.end(), place.group) == groups.end()) groups.push_back(place.group);
  std::sort(groups.begin(), groups.end());
  return groups;
}

int64_t Model::num_adapter_parameters() const {
  int64_t sum = 0;
  for (const auto& unit : units)
    for (const ParameterSpec& p : unit->parameters())
      if (is_adapter(p.name)) sum += c10::multiply_integers(p.whole_shape());
  return sum;
}

int64_t Model::num_frozen_product_parameters() const {
  std::set<std::pair<int, int>> counted;
  int64_t sum = 0;
  // The first unit looks rows up; tied ones are the head's, too. A classifier's head reads a row for each sequence.
  for (size_t u = 1; u < units.size() - (config.is_classifier() ? 1 : 0); ++u)
    for (const ParameterPlace& place : places[u]) {
      const ParameterGroup& group = groups[static_cast<size_t>(place.group)];
      const ParameterSpec& p = group.parameters[static_cast<size_t>(place.index)];
      const bool is_matrix = p.whole_shape().size() > 1 && p.name != kSamplerName;
      if (group.trained || !is_matrix || !counted.emplace(place.group, place.index).second) continue;
      sum += c10::multiply_integers(p.whole_shape());
    }
  return sum;
}

const Unit& Model::unit(int index, bool generates) const {
  return *(generates && !writers.empty() ? writers : units)[static_cast<size_t>(index)];
}

Parallel Model::parallel_of(bool generates) const {
  Parallel place = parallel;
  if (generates) place.cp_rank = 0, place.cp_size = 1;
  return place;
}

TensorSpec Model::inputs(const BatchShape& shape, bool generates) const {
  if (own_inputs) return *own_inputs;
  return {"tokens", {local_rows(parallel_of(generates), shape).tokens}, at::kLong};
}

TensorSpec Model::targets(const BatchShape& shape, bool generates) const {
  if (own_targets) return *own_targets;
  const int64_t tokens = local_rows(parallel_of(generates), shape).tokens;
  if (objective.has_inputs()) return {"targets", {objective.target_rows(), tokens}, at::kLong};
  return {"targets", {tokens}, at::kLong};
}

namespace {

// A matrix in memory is trained as one, and its modules are parts of it.
void check_whole(const std::vector<ParameterSpec>& specs, const std::set<std::string>& whole) {
  for (size_t begin = 0, end = 0; begin < specs.size(); begin = end) {
    std::vector<std::string> names;
    int64_t saved = 0;
    for (end = begin; end == begin || (end < specs.size() && specs[end].joined); ++end) {
      const std::string module = module_of(specs[end].name);
      names.push_back(module.substr(module.rfind('.') + 1));
      saved += whole.contains(module) ? 1 : 0;
    }
    if (saved == 0 || saved == std::ssize(names)) continue;
    const std::string last = names.back();
    names.pop_back();
    throw UsageError(fmt::format("modules_to_save: {} and {} are one matrix in memory: name {} or none",
                                 base::join(names, ", "), last, names.size() == 2 ? "all three" : "both"));
  }
}

// With adapters, everything else is frozen, except for whole modules.
Grouping with_frozen(const Model& model, Grouping grouping) {
  if (model.adapters.empty()) return grouping;
  std::set<std::string> adapted, present;
  for (const auto& unit : model.units) {
    check_whole(unit->parameters(), model.adapters.whole);
    for (const ParameterSpec& p : unit->parameters()) {
      const std::string module = module_of(p.name);
      (is_adapter(p.name) ? adapted : present).insert(module);
      if (!is_adapter(p.name) && !model.adapters.whole.contains(module)) grouping.frozen.push_back(p.name);
    }
  }
  for (const auto& [module, spec] : model.adapters.modules) {
    if (!adapted.contains(module))
      throw UsageError(fmt::format(
          "adapters on {} are not trained: matrices, the head and the embedding of tokens can have one; leave it out "
          "of lora.target_modules",
          module));
  }
  for (const std::string& module : model.adapters.whole)
    if (!present.contains(module))
      throw UsageError(fmt::format("modules_to_save names {}, which is no module of this model", module));
  return grouping;
}

// A tied matrix that is trained whole becomes two, as in PEFT: the module's own, and the other's, which stays.
ModelConfig untied_where_trained(ModelConfig config, const Adapters& adapters) {
  if (adapters.whole.contains("lm_head") ||
      adapters.whole.contains(module_of(embedding_table_name(config.architecture))))
    config.tie_word_embeddings = false;
  return config;
}

struct UnitOptions {
  const Objective& objective;
  std::shared_ptr<Scores> scores;
  bool float8 = false;
};

std::vector<std::unique_ptr<Unit>> build_units(const ModelConfig& config, const Precision& precision,
                                               const Parallel& parallel, const Adapters& adapters,
                                               const UnitOptions& options) {
  using Tables = std::shared_ptr<const RotaryTables>;
  Tables rotary, local;  // of blocks with a window, where these have frequencies of their own
  if (!config.learned_positions)
    rotary = std::make_shared<const RotaryTables>(config, precision.state, parallel, RotaryTables::Blocks::all);
  if (config.rope_local_theta > 0)
    local = std::make_shared<const RotaryTables>(config, precision.state, parallel, RotaryTables::Blocks::windowed);
  const VocabularyPart part = vocabulary_part(config, parallel, precision.on_gpu);
  std::vector<std::unique_ptr<Unit>> units;
  units.push_back(std::make_unique<EmbeddingUnit>(config, parallel, part, adapters));
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    if (config.is_free() && i == config.free.split_layer)
      units.push_back(std::make_unique<FreeBlock>(config, parallel, rotary));
    else
      units.push_back(std::make_unique<DecoderBlock>(config, i, parallel,
                                                     !config.rotates(i)              ? nullptr
                                                     : local && config.window(i) > 0 ? local
                                                                                     : rotary,
                                                     adapters, options.float8));
  }
  if (config.is_classifier())
    units.push_back(std::make_unique<ClassifierHead>(config, parallel));
  else
    units.push_back(std::make_unique<HeadUnit>(untied_where_trained(config, adapters), parallel, part, adapters,
                                               options.objective, options.scores));
  return units;
}

}  // namespace

Model build_model(const ModelConfig& given, const Precision& precision, const Parallel& parallel,
                  const Grouping& grouping, const Adapters& adapters, const Objective& objective) {
  ModelConfig config = given;
  // What is only multiplied is packed once.
  config.packed = {};
  if (!grouping.trains && !config.is_free() && !config.is_classifier() && !precision.on_gpu)
    config.packed = precision.compute;
  config.validate();
  check_divisible(config, parallel);
  check_free(config, precision, parallel, adapters, grouping.matrices_apart);
  check_classifier(config, precision, parallel, adapters);
  check_quantized(config, precision, adapters);
  check_objective(config, precision, objective);
  check_float8(config, parallel, precision, adapters, objective);
  Model m;
  m.config = config;
  m.parallel = parallel;
  m.adapters = adapters;
  m.objective = objective;
  if (objective.has_inputs()) m.scores = std::make_shared<Scores>();
  const UnitOptions options{.objective = objective, .scores = m.scores, .float8 = precision.float8 && grouping.trains};
  m.units = build_units(config, precision, parallel, adapters, options);
  if (objective.is_policy() && parallel.cp_size > 1)
    m.writers = build_units(config, precision, m.parallel_of(true), adapters, options);
  group_parameters(m, with_frozen(m, grouping));
  return m;
}

bool is_adapter(const std::string& parameter) { return parameter.find(".lora_") != std::string::npos; }

std::string module_of(const std::string& parameter) {
  return parameter.substr(0, is_adapter(parameter) ? parameter.find(".lora_") : parameter.rfind('.'));
}

namespace {

/// Parameters of one kind lie in one group only with each other.
struct GroupKind {
  bool trained = true;
  bool companion = false;
  bool quantized = false;
  std::string_view suffix(bool apart) const {
    return quantized ? ".quantized" : !trained ? ".frozen" : apart ? ".rest" : "";
  }
  bool operator==(const GroupKind&) const = default;
};

/// Parameters that stay together, before groups are merged.
struct Set {
  std::string name;
  GroupKind kind;
  int64_t num_params = 0;
};

std::string set_name(const Unit& unit, size_t index, WrapBy by, const std::string& before) {
  const std::vector<ParameterSpec>& specs = unit.parameters();
  if (by == WrapBy::parameter) return specs[index].joined ? before : specs[index].name;
  return by == WrapBy::block ? unit.name() : unit.layer_of(static_cast<int>(index));
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Names of the parameters that Grouping::frozen names, by themselves or by their unit.
std::set<std::string> frozen_parameters(const Model& model, const std::vector<std::string>& names) {
  std::set<std::string> frozen;
  std::vector<std::string> known;
  for (const auto& unit : model.units) {
    known.push_back(unit->name());
    for (const ParameterSpec& p : unit->parameters()) {
      known.push_back(p.name);
      if (contains(names, unit->name()) || contains(names, p.name)) frozen.insert(p.name);
    }
  }
  for (const std::string& name : names) {
    if (contains(known, name)) continue;
    throw UsageError(fmt::format("frozen names '{}', which is no unit or parameter of this model{}", name,
                                 base::did_you_mean(name, known)));
  }
  for (const auto& unit : model.units)
    for (size_t i = 1; i < unit->parameters().size(); ++i) {
      const std::string &p = unit->parameters()[i].name, &before = unit->parameters()[i - 1].name;
      if (unit->parameters()[i].joined && frozen.contains(p) != frozen.contains(before))
        throw UsageError(fmt::format("{} and {} are one matrix in memory; freeze both or neither", before, p));
    }
  return frozen;
}

void check(const Model& model, const Grouping& grouping) {
  if (grouping.own_group.empty()) return;
  if (grouping.by != WrapBy::block || grouping.min_num_params > 0)
    throw UsageError(
        "units with a group of their own (own_group) go with one group a unit: leave the grouping at 'block' and "
        "min_num_params at 0");
  std::vector<std::string> names;
  for (const auto& unit : model.units) names.push_back(unit->name());
  for (const std::string& name : grouping.own_group) {
    if (contains(names, name)) continue;
    throw UsageError(
        fmt::format("wrap.units names '{}', which is no unit of this model{}; units are embedding, block 0 "
                    "to block {}, head",
                    name, base::did_you_mean(name, names), model.config.num_hidden_layers - 1));
  }
}

/// The name of each set's group: consecutive sets share a group until it is large enough, those of another kind apart.
std::vector<std::string> merge(const std::vector<Set>& sets, int64_t min_num_params) {
  std::vector<std::string> groups(sets.size());
  for (const GroupKind kind : {GroupKind{true, false}, {true, true}, {false, false}, {false, false, true}}) {
    std::vector<size_t> alike;
    for (size_t i = 0; i < sets.size(); ++i)
      if (sets[i].kind == kind) alike.push_back(i);
    for (size_t first = 0, last; first < alike.size(); first = last) {
      int64_t num_params = 0;
      for (last = first; last < alike.size() && (last == first || num_params < min_num_params); ++last)
        num_params += sets[alike[last]].num_params;
      const std::string &begin = sets[alike[first]].name, &end = sets[alike[last - 1]].name;
      for (size_t i = first; i < last; ++i) groups[alike[i]] = last - first == 1 ? begin : begin + ".." + end;
    }
  }
  return groups;
}

}  // namespace

void group_parameters(Model& m, const Grouping& grouping) {
  check(m, grouping);
  m.groups.clear();
  m.places.clear();
  const std::set<std::string> frozen = frozen_parameters(m, grouping.frozen);
  std::map<std::string, int> readers;
  for (const auto& unit : m.units)
    for (const ParameterSpec& p : unit->parameters()) ++readers[p.name];
  const auto kind_of = [&](size_t unit, const ParameterSpec& p) {
    if (p.is_record()) return GroupKind{.trained = false, .quantized = true};
    const bool trained = grouping.trains && !frozen.contains(p.name);
    const bool hidden_matrix = p.whole_shape().size() == 2 && unit > 0 && unit + 1 < m.units.size();
    return GroupKind{trained, trained && grouping.matrices_apart && !hidden_matrix};
  };

  std::vector<Set> sets;
  std::vector<std::vector<int>> set_of(m.units.size());  // per unit and parameter; -1: tied
  for (size_t u = 0; u < m.units.size(); ++u) {
    const Unit& unit = *m.units[u];
    const bool rest = !grouping.own_group.empty() && !contains(grouping.own_group, unit.name());
    std::string before;
    for (size_t i = 0; i < unit.parameters().size(); ++i) {
      const ParameterSpec& p = unit.parameters()[i];
      before = rest ? "rest" : set_name(unit, i, grouping.by, before);
      if (readers[p.name] > 1) {
        set_of[u].push_back(-1);
        continue;
      }
      const GroupKind kind = kind_of(u, p);
      // The first and the last unit have nothing else, if they stand alone.
      const bool apart = kind.companion && (rest || (u > 0 && u + 1 < m.units.size()));
      const std::string name = before + std::string(kind.suffix(apart));
      auto found =
          std::find_if(sets.begin(), sets.end(), [&](const Set& s) { return s.name == name && s.kind == kind; });
      if (found == sets.end()) found = sets.insert(sets.end(), {name, kind});
      found->num_params += c10::multiply_integers(p.whole_shape());
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
      const GroupKind kind = kind_of(u, p);
      if (is_new)
        m.groups.push_back({.name = name,
                            .parameters = {},
                            .trained = kind.trained,
                            .quantized = kind.quantized,
                            .companion = kind.companion});
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
