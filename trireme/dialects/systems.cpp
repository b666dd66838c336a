#include "trireme/dialects/systems.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trireme/base/text.h"
#include "trireme/config/json_file.h"
#include "trireme/config/yaml_file.h"
#include "trireme/dialects/hydra_groups.h"

namespace trireme::dialects {

using config::Given;

namespace {

std::vector<Given> entries_of(const Dialect* dialect, const std::string& contents, const std::string& path,
                              std::vector<std::string>& others, config::Problems& problems) {
  const bool is_json = path.ends_with(".json") || (dialect != nullptr && dialect->is_json);
  std::vector<Given> entries =
      is_json ? config::read_json_tree(contents, path, problems) : config::read_yaml_tree(contents, path, problems);
  return dialect == &hydra() ? composed_by_hydra(std::move(entries), contents, path, others, problems) : entries;
}

config::ForeignFile file_of(const Dialect& dialect, const std::string& contents, const std::string& path,
                            config::Problems& problems) {
  config::ForeignFile file{std::string(dialect.name), path, {}};
  file.entries = entries_of(&dialect, contents, path, file.others, problems);
  return file;
}

bool has_mark(const Dialect& dialect, const std::vector<Given>& entries) {
  return std::ranges::any_of(entries, [&](const Given& entry) {
    return std::ranges::any_of(dialect.marks, [&](std::string_view mark) {
      return entry.key == mark ||
             (entry.key.size() > mark.size() && entry.key.starts_with(mark) && entry.key[mark.size()] == '.');
    });
  });
}

int64_t num_known(const Dialect& dialect, const std::vector<Given>& entries) {
  return std::ranges::count_if(entries, [&](const Given& e) { return find_row(dialect, e.key) != nullptr; });
}

// A setting under another name, which needs no more than its row.
bool is_plain(const Row& row) { return !row.setting.empty() && row.by == nullptr; }

void rename_maps(const Dialect& dialect, Given& given) {
  for (const auto& [theirs, ours] : dialect.renamed_maps) {
    if (given.key == theirs) {
      given.key = ours;
    } else if (given.key.size() > theirs.size() && given.key.starts_with(theirs) && given.key[theirs.size()] == '.') {
      given.key.replace(0, theirs.size(), ours);
    }
  }
}

// transformers takes a map as a text of JSON, too: '{"min_lr": 1e-5}' is the map that it stands for.
std::vector<Given> with_maps_of_texts(const Dialect& dialect, std::vector<Given> entries, config::Problems& problems) {
  if (&dialect != &trl()) return entries;
  std::vector<Given> all;
  for (Given& entry : entries) {
    const std::string below = entry.key + ".";
    const bool is_map = entry.kind == Given::Kind::scalar && entry.text.starts_with('{') &&
                        std::ranges::any_of(dialect.rows, [&](const Row& row) { return row.key.starts_with(below); });
    if (!is_map) {
      all.push_back(std::move(entry));
      continue;
    }
    std::vector<Given> inside = config::read_json_tree(entry.text, entry.key, problems);
    if (inside.empty()) inside.push_back({.kind = Given::Kind::section});
    for (Given& one : inside) {
      one.key = one.key.empty() ? entry.key : below + one.key;
      one.source = entry.source;
      all.push_back(std::move(one));
    }
  }
  return all;
}

// --node-rank
std::string with_underscores(std::string_view word) {
  std::string plain(word);
  std::ranges::replace(plain, '-', '_');
  return plain;
}

// The row of a key that may stand beside Trireme's.
const Row* word_row(const Dialect& dialect, std::string_view word) {
  const bool is_word =
      dialect.words == Words::all || (dialect.words == Words::plain && word.find('.') == std::string_view::npos);
  return is_word ? find_row(dialect, word) : nullptr;
}

}  // namespace

std::span<const Dialect* const> all_dialects() {
  static const std::vector<const Dialect*> kAll = {&deepspeed(), &accelerate(), &litgpt(), &free_transformer(),
                                                   &hydra(),     &torchrun(),   &trl()};
  return kAll;
}

Systems::Systems(Surroundings surroundings, std::span<const Dialect* const> dialects)
    : surroundings_(std::move(surroundings)), dialects_(dialects.begin(), dialects.end()) {}

void Systems::rename(Given& given) const {
  if (std::string plain = with_underscores(given.key); !dialect_of(plain).empty()) given.key = std::move(plain);
  for (const Dialect* dialect : dialects_) {
    if (dialect->words == Words::all) rename_maps(*dialect, given);
    const Row* row = word_row(*dialect, given.key);
    if (row == nullptr || !is_plain(*row)) continue;
    given.key = row->setting;
    if (given.kind == Given::Kind::section) continue;
    for (const auto& [theirs, ours] : row->words)
      if (given.text == theirs) given.text = ours;
    if (row->adapt != nullptr) row->adapt(given);
  }
}

std::string_view Systems::dialect_of(std::string_view word) const {
  for (const Dialect* dialect : dialects_)
    if (word_row(*dialect, word) != nullptr) return dialect->name;
  return {};
}

bool Systems::is_flag(std::string_view typed) const {
  const std::string word = with_underscores(typed);
  return std::ranges::any_of(dialects_, [&](const Dialect* dialect) {
    const Row* row = word_row(*dialect, word);
    return row != nullptr && row->takes == Takes::flag;
  });
}

std::string_view Systems::dialect_of_file_option(std::string_view word) const {
  const auto found = std::ranges::find_if(
      dialects_, [&](const Dialect* d) { return std::ranges::find(d->file_options, word) != d->file_options.end(); });
  return found == dialects_.end() ? std::string_view() : (*found)->name;
}

std::string Systems::hint_of(std::string_view key) const {
  for (const Dialect* dialect : dialects_) {
    const auto row = std::ranges::find(dialect->rows, key, &Row::key);  // not data.*, which are Trireme's too
    if (row == dialect->rows.end()) continue;
    const std::string fate = !row->setting.empty()   ? fmt::format("is {}", row->setting)
                             : !row->becomes.empty() ? fmt::format("becomes {}", row->becomes)
                             : !row->ignored.empty() ? fmt::format("has no effect: {}", row->ignored)
                             : !row->refused.empty() ? fmt::format("is refused: {}", row->refused)
                                                     : fmt::format("is not built yet: {}", row->open);
    return fmt::format("{} is a key of {}; in its files{} it {}", key, dialect->system,
                       dialect->is_json ? ", which are JSON," : "", fate);
  }
  return "";
}

const Dialect* Systems::named(std::string_view name) const {
  const auto found = std::ranges::find_if(dialects_, [&](const Dialect* d) { return d->name == name; });
  return found == dialects_.end() ? nullptr : *found;
}

std::optional<config::ForeignFile> Systems::recognise(const std::string& contents, const std::string& path,
                                                      const std::string& dialect, config::Problems& problems) const {
  if (dialect == "trireme") return std::nullopt;
  if (!dialect.empty()) {
    const Dialect* given = named(dialect);
    if (given == nullptr) {
      std::vector<std::string> names = {"trireme"};
      for (const Dialect* one : dialects_) names.emplace_back(one->name);
      problems.add(fmt::format("there is no dialect {}", dialect), {},
                   fmt::format("--config_dialect takes {}", base::join(names, ", ")));
      return config::ForeignFile{std::string(dialects_.front()->name), path, {}};
    }
    return file_of(*given, contents, path, problems);
  }
  config::Problems scratch;  // a file that is no tree is for Trireme's own reader to refuse
  const bool is_json = path.ends_with(".json");
  std::vector<std::string> no_others;  // nothing is composed yet
  const std::vector<Given> entries = entries_of(nullptr, contents, path, no_others, is_json ? problems : scratch);
  // A mark of a system whose files are JSON does not make a file JSON; it is an unknown setting there.
  const size_t begin = contents.find_first_not_of(" \t\r\n");
  const bool may_be_json = is_json || (begin != std::string::npos && contents[begin] == '{');
  const Dialect* best = is_of_hydra_group(entries, contents, path) ? named(hydra().name) : nullptr;
  const bool is_group = best != nullptr;
  for (const Dialect* one : dialects_)
    if (!is_group && (may_be_json || !one->is_json) && has_mark(*one, entries) &&
        (best == nullptr || num_known(*one, entries) > num_known(*best, entries)))
      best = one;
  if (best == nullptr) {
    if (is_json && !problems.empty()) return config::ForeignFile{"deepspeed", path, {}};
    return std::nullopt;
  }
  // Mistakes of a JSON file are told already.
  return is_json ? config::ForeignFile{std::string(best->name), path, entries}
                 : file_of(*best, contents, path, problems);
}

config::ForeignSettings Systems::read(const config::ForeignFile& file, const config::Table& table,
                                      const config::Parsed& parsed, std::string_view command,
                                      config::Problems& problems) const {
  const Dialect* dialect = named(file.dialect);
  if (dialect == nullptr) return {};
  config::ForeignFile renamed = file;
  renamed.entries = with_maps_of_texts(*dialect, std::move(renamed.entries), problems);
  for (Given& entry : renamed.entries) rename_maps(*dialect, entry);
  return Reading(*dialect, renamed, table, parsed, command, surroundings_, problems).run();
}

std::optional<config::ForeignFile> Reading::named_file(const Dialect& dialect, const std::string& path,
                                                       const Given& entry) {
  const auto contents = config::read_settings_file(
      path, problems_, {entry.source},
      fmt::format("{} names a file of {}, which has to be there", entry.key, dialect.system));
  if (!contents) {
    is_refused_[&entry] = true;
    return std::nullopt;
  }
  result_.files.push_back(path);
  config::ForeignFile file = file_of(dialect, *contents, path, problems_);
  for (Given& one : file.entries) rename_maps(dialect, one);
  return file;
}

}  // namespace trireme::dialects
