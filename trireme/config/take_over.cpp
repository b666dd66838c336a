#include "trireme/config/take_over.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "trireme/config/declaration.h"
#include "trireme/config/problems.h"
#include "trireme/config/value.h"
#include "trireme/config/yaml_file.h"

namespace trireme::config {
namespace {

template <size_t N>
bool is_one_of(const std::array<std::string_view, N>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

constexpr std::array<std::string_view, 4> kEnds = {"train.max_steps", "train.max_tokens", "train.epochs",
                                                   "train.max_time"};

std::vector<Given> given_in(const std::string& saved_yaml, const std::string& place) {
  Problems ignored;  // of another version
  return read_yaml(saved_yaml, place, ignored);
}

// Of a model, data or optimizer that has another name now, the saved settings say nothing.
std::set<std::string_view> renamed_groups(const ParsedSettings& parsed, const std::vector<Setting>& table,
                                          const std::vector<Given>& saved) {
  std::set<std::string_view> renamed;
  for (const Given& given : saved) {
    const Setting* setting = find(table, given.key);
    if (setting == nullptr || setting->key != group_of(setting->key) || !parsed.given(given.key)) continue;
    if (own_leaf(setting->key) == "name" && value_text(*setting) != given.text) renamed.insert(setting->key);
  }
  return renamed;
}

bool changes_what_is_learned(std::string_view key) {
  constexpr std::array<std::string_view, 4> kAlone = {"seed", "precision", "reduce", "accumulation"};
  constexpr std::array<std::string_view, 4> kGroups = {"model", "data", "train", "optimizer"};
  constexpr std::array<std::string_view, 7> kNot = {"train.log_interval", "train.save_interval", "train.max_time",
                                                    "data.num_workers",   "data.ledger",         "data.on_change",
                                                    "model.from_scratch"};
  return is_one_of(kAlone, key) || (is_one_of(kGroups, group_of(key)) && !is_one_of(kNot, key));
}

}  // namespace

bool is_taken_over(std::string_view key) {
  constexpr std::array<std::string_view, 7> kOfThePlace = {"out_dir", "resume",    "overwrite", "accelerator",
                                                           "devices", "num_nodes", "strategy"};
  constexpr std::array<std::string_view, 8> kGroups = {"",     "model", "data",      "train",
                                                       "eval", "save",  "optimizer", "recompute"};
  return is_one_of(kGroups, group_of(key)) && !is_one_of(kOfThePlace, key);
}

void take_over(ParsedSettings& parsed, const std::string& saved_yaml, const std::string& place) {
  const std::vector<Setting> table = declare(parsed.settings);
  const std::vector<Given> saved = given_in(saved_yaml, place);
  const std::set<std::string_view> renamed = renamed_groups(parsed, table, saved);
  const bool ends_anew =
      std::any_of(kEnds.begin(), kEnds.end(), [&](std::string_view key) { return parsed.given(std::string(key)); });
  Problems problems;
  for (const Given& given : saved) {
    const Setting* setting = find(table, given.key);
    if (setting == nullptr || parsed.given(given.key) || !is_taken_over(given.key) ||
        renamed.contains(group_of(given.key)) || (ends_anew && is_one_of(kEnds, given.key)))
      continue;
    if (const auto refusal = assign(*setting, given))
      problems.add(refusal->headline, {given.source},
                   fmt::format("the checkpoint {} says so; say another --{}", place, given.key));
    else
      parsed.provenance[given.key] = {Source::Kind::checkpoint, fmt::format("checkpoint {}", place), ""};
  }
  problems.throw_if_any();
}

std::vector<std::string> changes_since(const std::string& saved_yaml, const Settings& now) {
  Settings before, after = now;
  const std::vector<Setting> old_table = declare(before), new_table = declare(after);
  std::vector<std::string> changes;
  for (const Given& given : given_in(saved_yaml, "settings")) {
    const Setting *saved = find(old_table, given.key), *current = find(new_table, given.key);
    if (saved == nullptr || !changes_what_is_learned(given.key) || assign(*saved, given)) continue;
    if (const std::string was = value_text(*saved), is = value_text(*current); was != is)
      changes.push_back(fmt::format("{} was {}, is {} now", given.key, was, is));
  }
  return changes;
}

}  // namespace trireme::config
