#include "trireme/settings/take_over.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "trireme/config/problems.h"
#include "trireme/config/value.h"
#include "trireme/config/yaml_file.h"
#include "trireme/optim/settings_lr.h"

namespace trireme {
namespace {

std::vector<config::Given> given_in(const std::string& saved_yaml, const std::string& place,
                                    const config::Table& table) {
  config::Problems ignored;  // another version may have had other settings
  return config::read_yaml(saved_yaml, place, table, ignored);
}

// out/run, ./out/run and out/run/ are out/run/step-00000800 where that was the newest checkpoint.
bool is_same_name(const std::string& typed, const std::string& saved) {
  const auto plain = [](const std::string& name) {
    const std::filesystem::path path = std::filesystem::path(name).lexically_normal();
    return path.has_filename() ? path : path.parent_path();
  };
  const bool is_path = typed.find('/') != std::string::npos || saved.find('/') != std::string::npos;
  const bool is_step = plain(saved).filename().string().starts_with("step-");
  return typed == saved ||
         (is_path && (plain(typed) == plain(saved) || (is_step && plain(typed) == plain(saved).parent_path())));
}

// The sections (model, data, optimizer) whose name the user changed: their saved settings do not apply.
std::set<std::string_view> renamed_sections(const ParsedSettings& parsed, const config::Table& table,
                                            const std::vector<config::Given>& saved) {
  std::set<std::string_view> renamed;
  for (const config::Given& given : saved) {
    const config::Section* section = table.section_named(given.key);
    if (section == nullptr || section->own_leaf != "name" || !parsed.given(given.key)) continue;
    if (!is_same_name(config::value_text(*table.find(given.key)), given.text)) renamed.insert(section->name);
  }
  return renamed;
}

// Saved settings that say how another one does its work, or that stand in its place. They do not apply where the user
// changed that one.
struct Depends {
  std::string_view key;  ///< with a * at its end: all that begin so
  std::string_view on;
};
constexpr Depends kDepends[] = {{"lr_schedule.*", "train.lr_decay"},
                                {"data.train_data_path", "data.mixture"},
                                {"data.mixture", "data.train_data_path"},
                                {"precision.rounding", "precision"},
                                {"precision.loss_scale_hysteresis", "precision.scale_rule"},
                                {"precision.consecutive_hysteresis", "precision.scale_rule"}};
// Most schedules with a warm-up read these.
constexpr std::string_view kOfEveryWarmup[] = {"lr_schedule.first_step", "lr_schedule.warmup_from"};

bool is_named(std::string_view key, std::string_view pattern) {
  return pattern.ends_with('*') ? key.starts_with(pattern.substr(0, pattern.size() - 1)) : key == pattern;
}

std::set<std::string_view> changed_among(const ParsedSettings& parsed, const config::Table& table,
                                         const std::vector<config::Given>& saved) {
  std::set<std::string_view> changed;
  for (const Depends& rule : kDepends)
    for (const config::Given& given : saved)
      if (given.key == rule.on && parsed.given(given.key) && config::value_text(*table.find(given.key)) != given.text)
        changed.insert(rule.on);
  return changed;
}

bool depends_on_any(std::string_view key, const std::set<std::string_view>& changed) {
  if (std::ranges::find(kOfEveryWarmup, key) != std::end(kOfEveryWarmup)) return false;
  return std::ranges::any_of(kDepends,
                             [&](const Depends& rule) { return is_named(key, rule.key) && changed.contains(rule.on); });
}

// Another system's default of the first step may follow from the number of ranks, and an earlier version had another.
// A run keeps its schedule, so such a default gives way to the checkpoint.
bool keeps_from_checkpoint(const ParsedSettings& parsed, const std::string& key) {
  const auto source = parsed.provenance.find(key);
  return key == "lr_schedule.first_step" && source != parsed.provenance.end() &&
         source->second.place.ends_with("'s default");  // as dialects/reading.cpp writes it
}

// Of the schedule that the user chose instead.
bool has_no_first_step(const ParsedSettings& parsed, std::string_view key) {
  return key == "lr_schedule.first_step" && parsed.given("train.lr_decay") &&
         !optim::reads_first_step(parsed.settings.train.lr_decay);
}

}  // namespace

void take_over(ParsedSettings& parsed, const std::string& saved_yaml, const std::string& place) {
  const config::Table table = declare(parsed.settings);
  const std::vector<config::Given> saved = given_in(saved_yaml, place, table);
  const std::set<std::string_view> renamed = renamed_sections(parsed, table, saved);
  const std::set<std::string_view> changed = changed_among(parsed, table, saved);
  bool ends_anew = false;
  table.for_each([&](const config::Section&, const config::Setting& setting) {
    ends_anew |= setting.rules.ends_run && parsed.given(std::string(setting.key));
  });
  config::Problems problems;
  for (const config::Given& given : saved) {
    const config::Setting* setting = table.find(given.key);
    const bool is_given = parsed.given(given.key) && !keeps_from_checkpoint(parsed, given.key);
    if (setting == nullptr || is_given || has_no_first_step(parsed, given.key) ||
        table.resumed(given.key) == config::Resumed::no || renamed.contains(table.group_of(given.key)) ||
        depends_on_any(given.key, changed) || (ends_anew && setting->rules.ends_run))
      continue;
    if (const auto refusal = config::assign(*setting, given))
      problems.add(refusal->headline, {given.source},
                   fmt::format("the checkpoint {} has this value; give another --{}", place, given.key));
    else
      parsed.provenance[given.key] = {config::Source::Kind::checkpoint, fmt::format("checkpoint {}", place), ""};
  }
  problems.throw_if_any();
}

Settings settings_in(const std::string& saved_yaml) {
  Settings saved;
  const config::Table table = declare(saved);
  for (const config::Given& given : given_in(saved_yaml, "settings", table))
    if (const config::Setting* setting = table.find(given.key); setting != nullptr)
      static_cast<void>(config::assign(*setting, given));
  return saved;
}

namespace {

struct Change {
  std::string key, was, is;
};

// Of settings that affect what is learned.
std::vector<Change> find_changes(const std::string& saved_yaml, const Settings& now) {
  Settings before, after = now;
  const config::Table old_table = declare(before), new_table = declare(after);
  std::vector<Change> changes;
  for (const config::Given& given : given_in(saved_yaml, "settings", old_table)) {
    const config::Setting *saved = old_table.find(given.key), *current = new_table.find(given.key);
    if (saved == nullptr || old_table.resumed(given.key) != config::Resumed::learned || config::assign(*saved, given))
      continue;
    if (const std::string was = config::value_text(*saved), is = config::value_text(*current); was != is)
      changes.push_back({given.key, was, is});
  }
  return changes;
}

bool is_of_the_mesh(std::string_view key) {
  return key == "accelerator" || key == "strategy" || key.starts_with("mesh.") || key.starts_with("pipeline.");
}

// Of a mesh without stages, and of ranks that have whole sequences, these would be refused as words.
bool has_no_effect(std::string_view key, const Settings& s) {
  return (key.starts_with("pipeline.") && s.mesh.pp.value_or(1) == 1) ||
         (key == "mesh.context" && s.mesh.cp.value_or(1) == 1);
}

}  // namespace

std::vector<std::string> changes_since(const std::string& saved_yaml, const Settings& now) {
  std::vector<std::string> lines;
  for (const Change& c : find_changes(saved_yaml, now))
    lines.push_back(fmt::format("{} was {}, is {} now", c.key, c.was, c.is));
  return lines;
}

std::vector<std::pair<std::string, std::string>> to_give_again(const std::string& saved_yaml, const Settings& now) {
  Settings defaults, after = now;
  const config::Table default_table = declare(defaults), table = declare(after);
  const std::vector<Change> changes = find_changes(saved_yaml, now);
  const auto has_changed = [&](std::string_view key) { return std::ranges::count(changes, key, &Change::key) > 0; };
  bool ends_anew = false;
  table.for_each([&](const config::Section&, const config::Setting& setting) {
    ends_anew |= setting.rules.ends_run && has_changed(setting.key);
  });
  std::vector<std::pair<std::string, std::string>> words;
  table.for_each([&](const config::Section& section, const config::Setting& setting) {
    const std::string value = config::value_text(setting);
    const bool is_default = value == config::value_text(*default_table.find(setting.key));
    const bool is_permission = setting.key == "data.on_change";  // for data that were given, which may read alike
    // A model that has become another is the copy in a checkpoint, which a resume finds by itself. That of an adapter
    // is its base, which lies elsewhere now.
    const bool is_base = setting.key == "model" && (now.lora.r || now.lora.initial_adapter);
    const bool is_learned = has_changed(setting.key) && (is_base || !(section.name == "model" && has_changed("model")));
    // Where one end is given, none is taken over.
    const bool is_end = ends_anew && setting.rules.ends_run && !config::is_absent(setting);
    const bool is_placed = is_of_the_mesh(setting.key) && !has_no_effect(setting.key, now);
    if (((is_placed || is_permission) && !is_default) || is_end || (is_learned && !setting.rules.ends_run))
      words.emplace_back(setting.key, value);
  });
  return words;
}

}  // namespace trireme
