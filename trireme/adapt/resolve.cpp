#include "trireme/adapt/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/naming.h"
#include "trireme/model/tensor_names.h"
#include "trireme/text/regex.h"

namespace trireme::adapt {
namespace {

bool is_end_of(const std::string& name, const std::string& entry) {
  return name.size() > entry.size() && name.ends_with(entry) && name[name.size() - entry.size() - 1] == '.';
}

/// A Python regular expression that has to fit a whole name (re.fullmatch). text/regex.h refuses by name what it does
/// not know, and ends if an expression takes too long.
class WholeName {
 public:
  WholeName(const char* key, const std::string& pattern) try : regex_("\\A(?:" + pattern + ")\\z") {
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: the regular expression '{}' is not understood: {}", key, base::shortened(pattern),
                                 error.what()));
  }
  bool fits(std::string_view name) const {
    bool found = false;
    regex_.for_each_match(name, [&](text::Regex::Match) { found = true; });
    return found;
  }

 private:
  text::Regex regex_;
};

/// The names of a module: ours, and that in the whole vision model if ours is its text half.
std::vector<std::string> names_in(const model::ModelConfig& model, const std::string& ours) {
  if (!model.is_text_half) return {ours};
  return {ours, checkpoint::in_vision_model().name_of(ours)};
}

/// target_modules or exclude_modules.
class Matcher {
 public:
  Matcher(const char* key, const ModuleNames& names) : list_(names.list) {
    if (names.pattern) pattern_.emplace(key, *names.pattern);
  }
  /// Whether the list names exactly this module. Then layers_to_transform does not count.
  bool names(const std::string& name) const { return std::find(list_.begin(), list_.end(), name) != list_.end(); }
  bool fits(const std::string& name) const {
    if (pattern_) return pattern_->fits(name);
    return std::any_of(list_.begin(), list_.end(),
                       [&](const std::string& entry) { return name == entry || is_end_of(name, entry); });
  }

 private:
  std::vector<std::string> list_;
  std::optional<WholeName> pattern_;
};

/// layers_to_transform: the number after layers_pattern, or the first number after two other words.
class Layers {
 public:
  explicit Layers(const AdapterConfig& config) : numbers_(config.layers_to_transform) {
    for (const std::string& pattern : config.layers_pattern)
      patterns_.emplace_back("layers_pattern", "(?:.*\\.)?(?:" + pattern + ")");
  }
  bool fits(const std::string& name) const {
    if (!numbers_) return true;
    const std::optional<int64_t> number = number_in(name);
    return number && std::find(numbers_->begin(), numbers_->end(), *number) != numbers_->end();
  }

 private:
  std::optional<int64_t> number_in(const std::string& name) const {
    if (patterns_.empty())
      return first_number(name, [](std::string_view before) { return before.find('.') != std::string_view::npos; });
    for (const WholeName& pattern : patterns_)
      if (const auto number = first_number(name, [&](std::string_view before) { return pattern.fits(before); }))
        return number;
    return std::nullopt;
  }

  /// The first part of digits, with more behind it, whose `before` is accepted.
  template <typename Accepts>
  static std::optional<int64_t> first_number(const std::string& name, Accepts accepts) {
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      const size_t end = name.find('.', dot + 1);
      if (end == std::string::npos) return std::nullopt;
      const std::string part = name.substr(dot + 1, end - dot - 1);
      const bool digits =
          !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
      if (digits && accepts(std::string_view(name).substr(0, dot))) return std::stoll(part);
    }
    return std::nullopt;
  }

  const std::optional<std::vector<int64_t>>& numbers_;
  std::vector<WholeName> patterns_;
};

/// rank_pattern or alpha_pattern: the first key that fits the name or an end of it after a dot.
template <typename Number>
class Pattern {
 public:
  Pattern(const char* key, const std::vector<std::pair<std::string, Number>>& rows) {
    for (const auto& [name, value] : rows) rows_.emplace_back(WholeName(key, "(?:.*\\.)?(?:" + name + ")"), value);
  }
  Number value(const std::vector<std::string>& names, Number fallback) const {
    for (const auto& [pattern, value] : rows_)
      if (std::ranges::any_of(names, [&](const std::string& name) { return pattern.fits(name); })) return value;
    return fallback;
  }

 private:
  std::vector<std::pair<WholeName, Number>> rows_;
};

std::vector<std::string> names_of(const std::vector<Module>& modules) {
  std::vector<std::string> names;
  for (const Module& m : modules) names.push_back(m.name);
  return names;
}

/// Names of modules that hold other modules: "model.layers.0.mlp".
std::set<std::string> containers_of(const std::vector<Module>& modules) {
  std::set<std::string> containers;
  for (const Module& m : modules)
    for (size_t dot = m.name.find('.'); dot != std::string::npos; dot = m.name.find('.', dot + 1))
      containers.insert(m.name.substr(0, dot));
  return containers;
}

/// modules_to_save, as PEFT finds them: every module whose name ends so, with all that it holds.
std::set<std::string> whole_modules(const AdapterConfig& config, const std::vector<Module>& modules,
                                    const model::ModelConfig& model) {
  std::set<std::string> names = containers_of(modules), whole;
  for (const Module& m : modules) names.insert(m.name);
  for (const std::string& entry : config.modules_to_save) {
    bool found = false;
    for (const std::string& name : names) {
      const auto ends_so = [&](const std::string& known) { return known.ends_with(entry); };
      if (entry.empty() || std::ranges::none_of(names_in(model, name), ends_so)) continue;
      found = true;
      for (const Module& m : modules)
        if (m.name == name || m.name.starts_with(name + ".")) whole.insert(m.name);
    }
    if (found) continue;
    const auto near = base::nearest(entry, names_of(modules));
    throw UsageError(fmt::format("modules_to_save: this model has no module '{}'{}", base::shortened(entry),
                                 near ? fmt::format("; the nearest is {}", *near) : ""));
  }
  return whole;
}

/// The last parts of the names, each once: q_proj, k_proj, ...
std::string known_targets(const std::vector<Module>& modules) {
  std::vector<std::string> ends;
  for (const Module& m : modules) {
    if (m.kind == Module::Kind::norm) continue;
    const std::string end = m.name.substr(m.name.rfind('.') + 1);
    if (std::find(ends.begin(), ends.end(), end) == ends.end()) ends.push_back(end);
  }
  return base::join(ends, ", ");
}

std::string text_of(const ModuleNames& names) {
  return base::shortened(names.pattern ? "'" + *names.pattern + "'" : base::join(names.list, ", "));
}

[[noreturn]] void refuse_no_match(const AdapterConfig& config, const ModuleNames& targets,
                                  const std::vector<Module>& modules, bool excluded) {
  if (excluded)
    throw UsageError(fmt::format(
        "target_modules ({}) leaves no module to adapt: exclude_modules, layers_to_transform or modules_to_save takes "
        "away every module that it names",
        text_of(targets)));
  std::string hint;
  const std::string known = known_targets(modules);
  for (const std::string& entry : targets.list) {
    std::vector<std::string> ends;
    for (const Module& m : modules) ends.push_back(m.name.substr(m.name.rfind('.') + 1));
    hint = base::did_you_mean(entry, ends);
    if (!hint.empty()) break;
  }
  throw UsageError(fmt::format("target_modules fits no module of this model: {}{}; its modules are {}, and all-linear",
                               text_of(targets), hint, known));
}

void check_numbers(const AdapterConfig& c) {
  if (!(c.lora_dropout >= 0 && c.lora_dropout < 1))
    throw UsageError(fmt::format("lora_dropout is {}; it must be at least 0 and below 1", c.lora_dropout));
  if (c.use_dora && c.lora_bias)
    throw UsageError(
        "DoRA (lora.dora, use_dora) and a bias of B (lora.bias, lora_bias) exclude each other, as in PEFT");
  if (c.lora_bias && c.init_lora_weights != model::AdapterInit::kaiming)
    throw UsageError(
        "a bias of B (lora.bias, lora_bias) goes with the usual first values only (lora.init kaiming, "
        "init_lora_weights "
        "true), as in PEFT");
  if (c.target_modules.pattern && c.layers_to_transform)
    throw UsageError(
        "layers_to_transform goes with a list of target_modules, not with an expression; write the layers into the "
        "expression");
  if (!c.layers_pattern.empty() && !c.layers_to_transform)
    throw UsageError("layers_pattern says where layers_to_transform counts, and there is no layers_to_transform");
}

/// The modules that target_modules names; "all-linear" becomes a list.
ModuleNames targets_of(const AdapterConfig& config, const model::ModelConfig& model,
                       const std::vector<Module>& modules) {
  if (config.target_modules.pattern && is_all_linear(*config.target_modules.pattern)) {
    ModuleNames all;
    for (const Module& m : modules)
      if (m.kind == Module::Kind::linear && !m.is_head) all.list.push_back(m.name);
    return all;
  }
  if (!config.target_modules.empty()) return config.target_modules;
  if (const char* qkv = model::tensor_names(model.architecture).block.qkv) {
    const std::string name = qkv;
    return {.list = {name.substr(name.rfind('.') + 1)}};
  }
  return {.list = {"q_proj", "v_proj"}};
}

}  // namespace

bool is_all_linear(std::string word) {
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
  return word == "all-linear";
}

namespace {

/// The rules of one run's settings, against the modules of its model.
class TypedNames {
 public:
  TypedNames(const model::ModelConfig& model, const model::Adapters& adapters)
      : model_(model), adapters_(adapters), modules_(modules_of(model)), containers_(containers_of(modules_)) {}

  void require_targets(const ModuleNames& targets) const {
    const char* key = "lora.target_modules";
    for (const std::string& entry : targets.list)
      if (!fits_module(Matcher(key, {.list = {entry}}))) refuse_unknown(key, entry);
  }

  void require_excluded(const ModuleNames& excluded) const {
    const char* key = "lora.exclude_modules";
    const bool has_other_parts = model_.is_text_half;  // a vision model's, which exceptions may name
    if (excluded.pattern && !has_other_parts && !fits_module(Matcher(key, excluded)))
      throw UsageError(fmt::format("{}: {} fits no module of this model; its modules are {}", key, text_of(excluded),
                                   known_targets(modules_)));
    for (const std::string& entry : excluded.list) {
      const Matcher named(key, {.list = {entry}});
      if (fits_module(named) || (has_other_parts && !nearest_module(entry))) continue;
      if (std::ranges::any_of(containers_, [&](const auto& c) { return named.fits(c); }))
        throw UsageError(fmt::format("{} names {}, which is no matrix but holds several modules; name {}", key, entry,
                                     known_targets(modules_)));
      refuse_unknown(key, entry);
    }
  }

  void require_blocks(const std::vector<int64_t>& numbers) const {
    for (const int64_t number : numbers)
      if (number < 0 || number >= model_.num_hidden_layers)
        throw UsageError(fmt::format("lora.layers_to_transform: there is no block {}; this model's are 0 to {}", number,
                                     model_.num_hidden_layers - 1));
  }

  void require_adapter(const char* key, const std::string& entry) const {
    const Pattern<bool> named(key, {{entry, true}});
    const auto fits = [&](const std::string& name) { return named.value(names_in(model_, name), false); };
    if (std::ranges::any_of(adapters_.modules, [&](const auto& adapted) { return fits(adapted.first); })) return;
    if (!std::ranges::any_of(modules_, [&](const Module& m) { return fits(m.name); })) refuse_unknown(key, entry);
    throw UsageError(fmt::format("{}: {} has no adapter; name it in lora.target_modules, or leave it out", key,
                                 base::shortened(entry)));
  }

 private:
  bool fits_module(const Matcher& named) const {
    return std::ranges::any_of(modules_, [&](const Module& m) {
      return std::ranges::any_of(names_in(model_, m.name), [&](const auto& name) { return named.fits(name); });
    });
  }

  std::optional<std::string> nearest_module(const std::string& entry) const {
    std::vector<std::string> ends;
    for (const Module& m : modules_) ends.push_back(m.name.substr(m.name.rfind('.') + 1));
    return base::nearest(entry, ends);
  }

  [[noreturn]] void refuse_unknown(const char* key, const std::string& entry) const {
    const auto near = nearest_module(entry);
    throw UsageError(fmt::format("{}: this model has no module '{}'{}", key, base::shortened(entry),
                                 near ? fmt::format("; the nearest is {}", *near)
                                      : fmt::format("; its modules are {}", known_targets(modules_))));
  }

  const model::ModelConfig& model_;
  const model::Adapters& adapters_;
  const std::vector<Module> modules_;
  const std::set<std::string> containers_;
};

}  // namespace

void require_names(const AdapterConfig& config, const model::ModelConfig& model, const model::Adapters& adapters) {
  const TypedNames typed(model, adapters);
  typed.require_targets(config.target_modules);
  typed.require_excluded(config.exclude_modules);
  typed.require_blocks(config.layers_to_transform.value_or(std::vector<int64_t>{}));
  for (const auto& [name, rank] : config.rank_pattern) typed.require_adapter("lora.rank_pattern", name);
  for (const auto& [name, alpha] : config.alpha_pattern) typed.require_adapter("lora.alpha_pattern", name);
}

model::Adapters resolve(const AdapterConfig& config, const model::ModelConfig& model) {
  check_numbers(config);
  const std::vector<Module> modules = modules_of(model);
  const ModuleNames names = targets_of(config, model, modules);
  const Matcher targets("target_modules", names), excluded("exclude_modules", config.exclude_modules);
  const bool excludes = !config.exclude_modules.empty();
  const Layers layers(config);
  const Pattern<int64_t> ranks("rank_pattern", config.rank_pattern);
  const Pattern<double> alphas("alpha_pattern", config.alpha_pattern);
  model::Adapters adapters{.whole = whole_modules(config, modules, model)};
  // What PEFT keeps from adapters is narrower than what it saves: names between dots.
  std::vector<WholeName> saved;
  for (const std::string& entry : config.modules_to_save)
    saved.emplace_back("modules_to_save", "(?:|.*\\.)(?:" + entry + ")(?:|\\..*)");
  const auto is_saved = [&](const std::string& name) {
    return std::ranges::any_of(saved, [&](const WholeName& entry) { return entry.fits(name); });
  };

  bool any_named = false;
  const auto is_target = [&](const std::string& name) {
    const std::vector<std::string> known = names_in(model, name);
    const auto any = [&](const auto& fits) { return std::ranges::any_of(known, fits); };
    if (!any([&](const std::string& n) { return targets.fits(n); })) return false;
    any_named = true;
    return !(excludes && any([&](const std::string& n) { return excluded.fits(n); })) && !any(is_saved) &&
           (any([&](const std::string& n) { return targets.names(n); }) || layers.fits(name));
  };
  for (const std::string& name : containers_of(modules))
    if (is_target(name))
      throw UsageError(fmt::format("target_modules names {}, which is no matrix but holds several modules; name {}",
                                   name, known_targets(modules)));
  for (const Module& m : modules) {
    if (!is_target(m.name)) continue;
    if (m.kind == Module::Kind::norm)
      throw UsageError(
          fmt::format("target_modules names {}, a norm: only matrices and embeddings can have a low-rank "
                      "adapter; modules_to_save trains a norm itself",
                      m.name));
    if (adapters.whole.contains(m.name))
      throw UsageError(
          fmt::format("{} is named in target_modules and in modules_to_save; name it in one of them", m.name));
    if (config.lora_bias && m.kind == Module::Kind::embedding)
      throw UsageError(fmt::format("lora_bias: the embedding {} cannot have one, as in PEFT", m.name));
    const int64_t rank = ranks.value(names_in(model, m.name), config.r);
    if (rank < 1)
      throw UsageError(
          fmt::format("the rank of {} is {}; r and the numbers of rank_pattern must be at least 1", m.name, rank));
    const double alpha = alphas.value(names_in(model, m.name), config.lora_alpha);
    adapters.modules[m.name] = {
        .rank = rank,
        .scale = config.use_rslora ? alpha / std::sqrt(static_cast<double>(rank)) : alpha / static_cast<double>(rank),
        .dropout = config.lora_dropout,
        .dora = config.use_dora,
        .bias = config.lora_bias,
        .init = config.init_lora_weights};
  }
  if (adapters.modules.empty()) refuse_no_match(config, names, modules, any_named);
  return adapters;
}

AdapterConfig config_for_peft(const AdapterConfig& config, const model::ModelConfig& model) {
  if (!model.is_text_half) return config;
  const model::Adapters adapters = resolve(config, model);
  const Pattern<double> alphas("alpha_pattern", config.alpha_pattern);
  AdapterConfig named = config;
  named.target_modules = named.exclude_modules = {};
  named.layers_to_transform.reset();
  for (auto* names : {&named.layers_pattern, &named.modules_to_save}) names->clear();
  named.rank_pattern.clear(), named.alpha_pattern.clear();
  for (const auto& [ours, spec] : adapters.modules) {
    const std::string name = checkpoint::in_vision_model().name_of(ours);
    named.target_modules.list.push_back(name);
    if (spec.rank != config.r) named.rank_pattern.emplace_back(name, spec.rank);
    const double alpha = alphas.value(names_in(model, ours), config.lora_alpha);
    if (alpha != config.lora_alpha) named.alpha_pattern.emplace_back(name, alpha);
  }
  for (const std::string& ours : adapters.whole)
    named.modules_to_save.push_back(checkpoint::in_vision_model().name_of(ours));
  return named;
}

}  // namespace trireme::adapt
