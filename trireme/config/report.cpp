#include "trireme/config/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/text.h"
#include "trireme/config/choices.h"
#include "trireme/config/declaration.h"
#include "trireme/config/hints.h"
#include "trireme/config/precision.h"
#include "trireme/config/value.h"

namespace trireme::config {

namespace {

std::string_view public_name(const Group& group) { return group.name.empty() ? "run" : group.name; }

// "64 sequences", "null: no limit", "auto: 1".
std::string default_text(const Setting& setting) {
  std::string text = value_text(setting);
  if (is_absent(setting)) {
    return setting.rules.when_absent.empty() ? text : fmt::format("{}: {}", text, setting.rules.when_absent);
  }
  if (text.empty()) return "empty";
  if (setting.rules.unit.empty()) return text;
  std::string_view unit = setting.rules.unit;
  if (text == "1" && unit.back() == 's') unit.remove_suffix(1);
  return fmt::format("{} {}", text, unit);
}

// Choices explain themselves; other types are named, with the unit they count.
std::string type_text(const Setting& setting) {
  const std::string type = type_name(setting);
  if (type == "choice" || type == "name" || type == "folder") return allowed_text(setting);
  if (type == "list of names" && !setting.rules.classes.empty()) return "list of " + allowed_text(setting);
  std::string text = type;
  if (!setting.rules.unit.empty()) text += fmt::format(" of {}", setting.rules.unit);
  const std::string allowed = allowed_text(setting);
  return allowed.empty() ? text : fmt::format("{}, {}", text, allowed);
}

std::string wrap(std::string_view text, size_t indent, size_t width) {
  std::string result(indent, ' ');
  size_t column = indent;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find(' ', start), text.size());
    const std::string_view word = text.substr(start, end - start);
    if (column > indent && column + 1 + word.size() > width) {
      result += '\n';
      result.append(indent, ' ');
      column = indent;
    } else if (column > indent) {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
    start = end + 1;
  }
  return result + "\n";
}

// "(or --prompt)" where a command of this section takes generate.prompt by its last part alone.
std::string short_name(std::string_view key, std::string_view section) {
  const std::string_view leaf = key.substr(key.rfind('.') + 1);
  const bool is_own = !section.empty() && leaf.size() != key.size() && group_of(key) == section;
  return is_own || (leaf != key && canonical_key(leaf) == key) ? fmt::format("  (or --{})", leaf) : "";
}

std::string markdown_cell(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result;
}

}  // namespace

std::string help_text(const std::vector<std::string>& words, std::string_view section) {
  std::vector<std::string> wanted;  // groups and keys
  for (const std::string& word : words) {
    const bool is_group =
        std::any_of(groups().begin(), groups().end(), [&](const Group& g) { return public_name(g) == word; });
    const std::string key = canonical_key(word);
    const bool is_key = std::find(all_keys().begin(), all_keys().end(), key) != all_keys().end();
    if (!is_group && !is_key) {
      std::vector<std::string> names;
      for (const Group& group : groups()) names.emplace_back(public_name(group));
      throw UsageError(fmt::format("error: there is no setting or group of settings '{}'\n  {}\n  groups are {}", word,
                                   hint_for(word), base::join(names, ", ")));
    }
    wanted.push_back(is_group ? word : key);
  }
  const auto asked_for = [&](std::string_view name) {
    return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
  };
  Settings settings;
  const std::vector<Setting> table = declare(settings);
  std::string text;
  for (const Group& group : groups()) {
    std::string rows;
    for (const Setting& setting : table) {
      if (group_of(setting.key) != group.name || !(asked_for(public_name(group)) || asked_for(setting.key))) continue;
      rows += fmt::format("  --{}{}  {}  [{}]\n", setting.key, short_name(setting.key, section), type_text(setting),
                          default_text(setting));
      const std::string aliases = alias_text(setting);
      rows += wrap(fmt::format("{}{}", setting.help, aliases.empty() ? "" : "; also " + aliases), 6, 100);
    }
    if (rows.empty()) continue;
    text += fmt::format("{}{} ({})\n{}", text.empty() ? "" : "\n", public_name(group), group.title, rows);
  }
  return text;
}

std::string settings_reference_markdown() {
  std::string text =
      "# Settings\n\n"
      "<!-- Written by `make docs` from trireme/config/declaration.cpp; edit it there. -->\n\n"
      "A setting has one dotted key everywhere: `--train.micro_batch_size 4`, `--train.micro_batch_size=4` or\n"
      "`train.micro_batch_size=4` on the command line, `train: {micro_batch_size: 4}` in a YAML file given with\n"
      "`--config FILE`, `TRIREME_TRAIN_MICRO_BATCH_SIZE=4` in the environment. Defaults come first, then what a\n"
      "resumed run's checkpoint says (`docs/checkpoints.md`), then the environment, then the arguments from left to\n"
      "right (a file where its `--config` stands); what comes later wins. In one file a key stands once. A true/false "
      "setting alone means true: `--engine.poison`.\n\n"
      "Numbers may be written `3e9` or `4_096`, sizes `512MiB` or `5GB`, times `30s`, `10m` or `1h30m` (a bare number\n"
      "is seconds), lists `[4, 4, 3]` or `4,4,3`. `null` means that a setting is not given. In YAML, `data` and\n"
      "`optimizer` are names (`data: Austen`) or groups (`data: {name: TextFiles, train_data_path: F}`); LitGPT's\n"
      "`{class_path: litgpt.data.TextFiles, init_args: {train_data_path: F}}` says the same. `recompute` is a word\n"
      "(`recompute: full`) or a group (`recompute: {mode: selective, values: [mid, hidden]}`).\n\n"
      "`trireme explain config ...` prints every value and where it came from; what is wrong is refused before\n"
      "anything starts, with exit code 2.\n";
  Settings settings;
  const std::vector<Setting> table = declare(settings);
  for (const Group& group : groups()) {
    text += fmt::format("\n## {}: {}\n\n| setting | takes | default | meaning |\n|---|---|---|---|\n",
                        public_name(group), group.title);
    for (const Setting& setting : table) {
      if (group_of(setting.key) != group.name) continue;
      const std::string aliases = alias_text(setting);
      text += fmt::format("| `{}` | {} | {} | {} |\n", setting.key, markdown_cell(type_text(setting)),
                          markdown_cell(default_text(setting)),
                          markdown_cell(fmt::format("{}{}", setting.help, aliases.empty() ? "" : "; also " + aliases)));
    }
  }
  return text;
}

std::string explain(const ParsedSettings& parsed) {
  Settings copy = parsed.settings;
  struct Line {
    std::string key, value, source;
  };
  std::vector<Line> lines;
  size_t key_width = 0, value_width = 0;
  for (const Setting& setting : declare(copy)) {
    Line line{std::string(setting.key), value_text(setting), "default"};
    if (line.value.empty()) line.value = "\"\"";
    if (setting.key == "precision" && copy.precision == Precision::automatic) {
      line.value = fmt::format("auto ({} here)", name_of(resolve(copy)));
    }
    if (const auto source = parsed.provenance.find(line.key); source != parsed.provenance.end()) {
      const bool show_text =
          source->second.kind == Source::Kind::command_line || source->second.kind == Source::Kind::environment;
      line.source = show_text ? fmt::format("{}: {}", source->second.place, source->second.text) : source->second.place;
    }
    key_width = std::max(key_width, line.key.size());
    value_width = std::max(value_width, std::min<size_t>(line.value.size(), 40));
    lines.push_back(std::move(line));
  }
  std::string text;
  for (const Line& line : lines) {
    text += fmt::format("{:<{}}  {:<{}}  {}\n", line.key, key_width, line.value, value_width, line.source);
  }
  return text;
}

}  // namespace trireme::config
