#include "trireme/config/hints.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <span>
#include <vector>

#include "trireme/base/text.h"
#include "trireme/config/other_systems.h"

namespace trireme::config {
namespace {

std::string_view leaf_of(std::string_view key) { return key.substr(key.rfind('.') + 1); }

bool names(std::string_view row, std::string_view word) {
  return row == word || (row.back() == '_' && word.starts_with(row));
}

// The row of a section about this word of another system, with - or _; null if there is none.
const OtherWords* look_up(const Table& table, std::string_view typed, bool is_not_available,
                          const std::function<bool(const Section&)>& counts = {}) {
  std::string word(typed);
  std::ranges::replace(word, '-', '_');
  for (const Section& section : table.sections())
    for (const OtherWords& row : section.others)
      if (row.is_not_available == is_not_available && (!counts || counts(section)) &&
          std::any_of(row.words.begin(), row.words.end(), [&](std::string_view one) { return names(one, word); }))
        return &row;
  return nullptr;
}

std::vector<std::string_view> words_of(std::string_view name) {
  std::vector<std::string_view> words;
  for (size_t end = 0; end != std::string_view::npos;) {
    end = name.find_first_of("._");
    words.push_back(name.substr(0, end));
    if (end != std::string_view::npos) name.remove_prefix(end + 1);
  }
  return words;
}

// Whether somebody who means one may have typed the other: total_steps is four letters away from eval_steps, and
// another word. Names with other numbers of words differ in how they are joined, so two letters at most.
bool have_alike_words(std::string_view typed, std::string_view candidate, int distance) {
  if (distance <= 1) return true;
  const std::vector<std::string_view> one = words_of(typed), other = words_of(candidate);
  if (one.size() != other.size()) return distance <= 2;
  for (size_t i = 0; i < one.size(); ++i) {
    const int allowed = std::max(1, static_cast<int>(other[i].size()) / 3);
    const int apart = base::edit_distance(one[i], other[i], allowed);
    if (apart > allowed || (apart > 1 && one[i].substr(0, 1) != other[i].substr(0, 1))) return false;
  }
  return true;
}

// The number of letters by which `typed` differs from `candidate`, a spelling of `key`. Nothing if that is more than a
// third of the key's last part (one letter is always allowed), because keys of one group need not be alike.
std::optional<int> distance_if_near(std::string_view typed, std::string_view candidate, std::string_view key) {
  // Measured on the last part: train.batch and train.epochs share half their letters and are not alike.
  const int forgiven = std::max(1, static_cast<int>(leaf_of(key).size()) / 3);
  if (std::abs(std::ssize(typed) - std::ssize(candidate)) > forgiven) return std::nullopt;
  const int distance = base::edit_distance(typed, candidate, forgiven);
  if (distance >= std::ssize(typed)) return std::nullopt;  // no letter is the same
  return distance <= forgiven && have_alike_words(typed, candidate, distance) ? std::optional(distance) : std::nullopt;
}

std::string joined(std::string_view key) {
  std::string words(key);
  std::ranges::replace(words, '.', '_');
  return words;
}

// The keys that have the same words, joined otherwise: train.save_interval for save.interval, eval.max_iters for
// train.eval_max_iters, data.path for data.train_data_path and data.val_data_path. None for a single word.
std::vector<std::string> same_words(std::span<const std::string> keys, std::string_view typed) {
  const std::string words = joined(typed);
  std::vector<std::string> found;
  for (const std::string& key : keys) {
    const std::string own = joined(key);
    const auto is_end_of = [](const std::string& end, const std::string& whole) {
      return end.find('_') != std::string::npos && (whole == end || whole.ends_with("_" + end));
    };
    if (key.find('.') != std::string::npos && (is_end_of(words, own) || is_end_of(own, words))) found.push_back(key);
  }
  return found;
}

// "it is KEY", or the few that there are.
std::optional<std::string> these(const std::vector<std::string>& keys) {
  if (keys.empty() || keys.size() > 3) return std::nullopt;
  return keys.size() == 1 ? fmt::format("it is {}", keys[0]) : fmt::format("there are {}", base::join(keys, " and "));
}

struct Nearest {
  std::string text;
  int distance = std::numeric_limits<int>::max();

  void offer(std::string_view typed, std::string_view candidate, const std::string& hint, std::string_view key = {}) {
    const auto away = distance_if_near(typed, candidate, key.empty() ? candidate : key);
    if (!away || *away >= distance) return;
    distance = *away;
    text = hint;
  }
};

// "train.global_batch_size, train.micro_batch_size, ..."
std::string first_keys(const Section& section) {
  std::string text;
  for (const Setting& setting : std::span(section.rows).first(std::min<size_t>(section.rows.size(), 3)))
    text += fmt::format("{}, ", setting.key);
  return text + "...";
}

constexpr std::string_view kPrefix = "TRIREME_";

// Set by launchers for their ranks, and by scripts of this project.
constexpr std::array<std::string_view, 15> kOfOurOwn = {
    "TRIREME_JOB_ID",    "TRIREME_RUN",         "TRIREME_RESTART_COUNT", "TRIREME_TOKEN_FD",   "TRIREME_STORE_FD",
    "TRIREME_REPORT_FD", "TRIREME_LAUNCHER_ID", "TRIREME_FLIGHT_FOLDER", "TRIREME_STARTED_NS", "TRIREME_HOST_ID",
    "TRIREME_LOCK_FD",   "TRIREME_OUT",         "TRIREME_SLOW",          "TRIREME_TOKEN_FILE", "TRIREME_PASSED_OVER"};

// A Kubernetes service named trireme-data sets these in every pod of its namespace.
bool is_of_kubernetes(std::string_view name) {
  return name.find("_SERVICE_HOST") != std::string_view::npos || name.find("_SERVICE_PORT") != std::string_view::npos ||
         name.find("_PORT_") != std::string_view::npos || name.ends_with("_PORT");
}

std::string nearest_name(const Table& table, std::string_view name) {
  Nearest nearest;
  for (const std::string& key : table.keys()) nearest.offer(name, environment_name(key), environment_name(key), key);
  return nearest.text;
}

// Of TRIREME_TRAIN the group that it names, which is no setting.
const Section* group_called(const Table& table, const std::string& name) {
  const auto found = std::ranges::find_if(table.sections(), [&](const Section& section) {
    return !section.name.empty() && environment_name(section.name) == name;
  });
  return found == table.sections().end() ? nullptr : &*found;
}

// The settings of TRIREME_MAX_STEPS, which lacks their group. One word, as in TRIREME_PATH, may be somebody else's.
std::vector<std::string> settings_without_group(const Table& table, const std::string& name) {
  std::vector<std::string> found;
  for (const std::string& key : table.keys()) {
    const std::string leaf(leaf_of(key));
    if (leaf.find('_') != std::string::npos && environment_name(leaf) == name) found.push_back(environment_name(key));
  }
  return found;
}

bool begins_like_a_section(const Table& table, const std::string& name) {
  return std::any_of(table.sections().begin(), table.sections().end(), [&](const Section& section) {
    return !section.name.empty() && name.starts_with(environment_name(section.name) + "_");
  });
}

}  // namespace

std::optional<std::string> refusal_of(const Table& table, std::string_view key) {
  const OtherWords* row = look_up(table, leaf_of(key), true);
  if (row == nullptr) row = look_up(table, key, true);
  return row == nullptr ? std::nullopt : std::optional<std::string>(row->sentence);
}

std::string hint_for(const Table& table, std::string_view unknown_key, std::string_view command,
                     const std::function<bool(const std::string& key)>& reads) {
  const std::string_view leaf = leaf_of(unknown_key);
  if (const Section* group =
          unknown_key.ends_with('.') ? table.section_named(unknown_key.substr(0, unknown_key.size() - 1)) : nullptr)
    return fmt::format("its settings are {}", first_keys(*group));

  // Another system's word is a hint where the command reads a setting of its group.
  const auto has_read = [&](const Section& section) {
    return !reads || section.rows.empty() || std::ranges::any_of(table.keys(), [&](const std::string& key) {
      return table.section_of(key) == &section && reads(key);
    });
  };
  // A sentence that names settings names one that the command reads.
  const auto names_unread_alone = [&](std::string_view sentence) {
    bool names_any = false;
    for (const std::string& key : table.keys()) {
      if (key.find('.') == std::string::npos || sentence.find(key) == std::string_view::npos) continue;
      if (!reads || reads(key)) return false;
      names_any = true;
    }
    return names_any;
  };
  for (const std::string& word : {joined(unknown_key), std::string(leaf)})
    if (const OtherWords* row = look_up(table, word, false, has_read);
        row != nullptr && !names_unread_alone(row->sentence))
      return std::string(row->sentence);
  std::vector<std::string> keys;
  std::ranges::copy_if(table.keys(), std::back_inserter(keys),
                       [&](const std::string& key) { return !reads || reads(key); });
  if (const auto same = these(same_words(keys, unknown_key))) return *same;
  // The right name in the wrong place: micro_batch_size, model.lr, train.interval.
  std::vector<std::string> elsewhere;
  for (const std::string& key : keys) {
    if (leaf_of(key) == leaf) elsewhere.push_back(key);
  }
  if (const auto known = these(elsewhere)) return *known;

  // A typing mistake. Of equally near candidates the whole key wins, then its last part, then other systems' words.
  Nearest nearest;
  for (const std::string& key : keys) nearest.offer(unknown_key, key, "the nearest is " + key);
  for (const std::string& key : keys) nearest.offer(leaf, leaf_of(key), "the nearest is " + key);
  for (const Section& section : table.sections())
    if (!section.name.empty() && section.own_leaf.empty())
      nearest.offer(unknown_key, section.name,
                    fmt::format("the nearest is the group {}: {}", section.name, first_keys(section)));
  for (const Section& section : table.sections())
    for (const OtherWords& row : section.others)
      for (const std::string_view word : row.words)
        if (!row.is_not_available && has_read(section)) nearest.offer(leaf, word, std::string(row.sentence));
  if (!nearest.text.empty()) return nearest.text;
  const std::string theirs = table.others == nullptr ? "" : table.others->hint_of(unknown_key);
  const bool names_unread = std::ranges::any_of(
      table.keys(), [&](const std::string& key) { return reads && theirs.ends_with(" " + key) && !reads(key); });
  if (!theirs.empty() && !names_unread) return theirs;

  const std::string head = std::string(unknown_key.substr(0, unknown_key.find('.'))) + ".";
  std::vector<std::string> siblings;
  for (const std::string& key : table.keys())
    if (key.starts_with(head)) siblings.push_back(key);
  if (!siblings.empty()) return fmt::format("there are {}", base::join(siblings, ", "));
  // Commands that plan or convert a run take its settings.
  if (command.starts_with("explain") || command == "plan" || command == "convert_config")
    return fmt::format("trireme {} --help lists its own settings, trireme pretrain --help those of a run", command);
  return fmt::format("trireme {} --help lists its settings", command.empty() ? "COMMAND" : command);
}

std::vector<StrayVariable> stray_variables(const Table& table, std::span<const std::string> names) {
  std::vector<StrayVariable> found;
  for (const std::string& name : names) {
    if (!name.starts_with(kPrefix) || std::find(kOfOurOwn.begin(), kOfOurOwn.end(), name) != kOfOurOwn.end()) continue;
    if (name == "TRIREME_CONFIG") {  // nearly a setting's name, and many programs read such a variable
      found.push_back({name, "a file is named on the command line: --config FILE"});
      continue;
    }
    const std::string near = nearest_name(table, name);
    if (near == name) continue;  // a setting
    const std::vector<std::string> meant = settings_without_group(table, name);
    if (const Section* group = group_called(table, name))
      found.push_back({name, fmt::format("{} is a group of settings, and each has a variable of its own: {}",
                                         group->name, environment_name(group->rows.front().key))});
    else if (!meant.empty() && !is_of_kubernetes(name))
      found.push_back({name, fmt::format("it is {}", base::join(meant, " or "))});
    else if (!near.empty())
      found.push_back({name, fmt::format("the nearest is {}", near)});
    else if (begins_like_a_section(table, name) && !is_of_kubernetes(name))
      found.push_back({name, fmt::format("unset {}, or name a setting of docs/settings.md", name)});
  }
  return found;
}

std::vector<std::string> own_variables() {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with(kPrefix)) names.emplace_back(text.substr(0, text.find('=')));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace trireme::config
