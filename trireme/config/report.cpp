#include "trireme/config/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/hints.h"
#include "trireme/config/value.h"

namespace trireme::config {
namespace {

// "64 sequences", "null: no limit", "auto: 1".
std::string default_text(const Setting& setting) {
  std::string text = value_text(setting);
  if (is_absent(setting))
    return setting.rules.when_absent.empty() ? text : fmt::format("{}: {}", text, setting.rules.when_absent);
  if (text.empty()) return "empty";
  if (setting.rules.unit.empty()) return text;
  std::string_view unit = setting.rules.unit;
  if (text == "1" && unit.back() == 's') unit.remove_suffix(1);
  return fmt::format("{} {}", text, unit);
}

// What the command says of it, else default_text.
std::string shown_default(const Setting& setting, const Overlay& overlay) {
  for (const auto& [key, text] : overlay.shown_defaults)
    if (key == setting.key) return is_absent(setting) ? fmt::format("{}: {}", value_text(setting), text) : text;
  return default_text(setting);
}

// The words of a choice; the name, unit and bounds of other types.
std::string type_text(const Setting& setting) {
  const std::string type = type_name(setting);
  if (type == "choice" || type == "name" || type == "choice or text") return allowed_text(setting);
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

// "(or --prompt)" if a command of this section takes generate.prompt by its last part alone.
std::string short_name(const Table& table, std::string_view key, std::string_view section) {
  const std::string_view leaf = key.substr(key.rfind('.') + 1);
  const bool is_own = !section.empty() && leaf.size() != key.size() && table.group_of(key) == section;
  return is_own || (leaf != key && table.canonical_key(leaf) == key) ? fmt::format("  (or --{})", leaf) : "";
}

std::string with_aliases(const Setting& setting) {
  const std::string aliases = alias_text(setting);
  return fmt::format("{}{}", setting.help, aliases.empty() ? "" : "; also " + aliases);
}

// Groups and keys; throws for other words.
std::vector<std::string> wanted_of(const Table& table, const std::vector<std::string>& words) {
  std::vector<std::string> wanted;
  for (const std::string& word : words) {
    const bool is_group = std::any_of(table.sections().begin(), table.sections().end(),
                                      [&](const Section& s) { return public_name(s) == word; });
    const std::string key = table.canonical_key(word);
    if (!is_group && table.find(key) == nullptr) {
      std::vector<std::string> names;
      for (const Section& section : table.sections())
        if (std::ranges::find(names, public_name(section)) == names.end()) names.emplace_back(public_name(section));
      throw UsageError(fmt::format("error: there is no setting or group of settings '{}'\n  {}\n  groups are {}", word,
                                   hint_for(table, word, "pretrain"), base::join(names, ", ")));
    }
    wanted.push_back(is_group ? word : key);
  }
  return wanted;
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

std::string help_text(const Table& table, const std::vector<std::string>& words, const Overlay& overlay) {
  const std::vector<std::string> wanted = wanted_of(table, words);
  const auto asked_for = [&](std::string_view name) {
    return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
  };
  std::string text;
  std::string_view open = "none yet";
  table.for_each([&](const Section& section, const Setting& setting) {
    if (!asked_for(public_name(section)) && !asked_for(setting.key)) return;
    if (section.name != open)
      text += fmt::format("{}{} ({})\n", text.empty() ? "" : "\n", public_name(section), section.title);
    open = section.name;
    text += fmt::format("  --{}{}  {}  [{}]\n", setting.key, short_name(table, setting.key, overlay.section),
                        type_text(setting), shown_default(setting, overlay));
    text += wrap(with_aliases(setting), 6, 100);
  });
  return text;
}

std::string reference_tables(const Table& table) {
  std::string text;
  std::string_view open = "none yet";
  table.for_each([&](const Section& section, const Setting& setting) {
    if (section.name != open)
      text += fmt::format("\n## {}: {}\n\n| setting | takes | default | meaning |\n|---|---|---|---|\n",
                          public_name(section), section.title);
    open = section.name;
    text += fmt::format("| `{}` | {} | {} | {} |\n", setting.key, markdown_cell(type_text(setting)),
                        markdown_cell(default_text(setting)), markdown_cell(with_aliases(setting)));
  });
  return text;
}

std::string explain(const Table& table, const Parsed& parsed) {
  struct Line {
    std::string key, value, source;
  };
  std::vector<Line> lines;
  size_t key_width = 0, value_width = 0;
  table.for_each([&](const Section&, const Setting& setting) {
    Line line{std::string(setting.key), value_text(setting), "default"};
    if (line.value.empty()) line.value = "\"\"";
    if (!setting.here.empty()) line.value += fmt::format(" ({} here)", setting.here);
    if (const auto source = parsed.provenance.find(line.key); source != parsed.provenance.end()) {
      const bool show_text =
          source->second.kind == Source::Kind::command_line || source->second.kind == Source::Kind::environment;
      line.source = show_text ? fmt::format("{}: {}", source->second.place, source->second.text) : source->second.place;
    }
    key_width = std::max(key_width, line.key.size());
    value_width = std::max(value_width, std::min<size_t>(line.value.size(), 40));
    lines.push_back(std::move(line));
  });
  std::string text;
  for (const Line& line : lines)
    text += fmt::format("{:<{}}  {:<{}}  {}\n", line.key, key_width, line.value, value_width, line.source);
  return text;
}

}  // namespace trireme::config
