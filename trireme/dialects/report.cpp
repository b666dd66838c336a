// What became of another system's keys, for people: `trireme explain config`, and docs/dialects.md.
#include <fmt/format.h>

#include <algorithm>

#include "trireme/dialects/systems.h"

namespace trireme::dialects {
namespace {

std::string cell(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result;
}

std::string takes_text(const Row& row) {
  std::string text;
  switch (row.takes) {
    case Takes::anything:
      text = "any value";
      break;
    case Takes::flag:
      text = "true or false";
      break;
    case Takes::count:
      text = "whole number";
      break;
    case Takes::number:
      text = "number";
      break;
    case Takes::text:
      text = "text";
      break;
    case Takes::numbers:
      text = "list of numbers";
      break;
  }
  return row.automatic.empty() ? text : text + ", or auto";
}

std::string words_text(const Row& row) {
  std::string text;
  for (const auto& [theirs, ours] : row.words)
    text += fmt::format("{}`{}` {}", text.empty() ? ": " : ", ", theirs, ours.empty() ? "\"\"" : ours);
  return text;
}

std::string fate_text(const Row& row) {
  if (!row.setting.empty()) return fmt::format("`{}`{}", row.setting, words_text(row));
  if (!row.becomes.empty()) return fmt::format("becomes {}", row.becomes);
  if (!row.ignored.empty()) return fmt::format("ignored: {}", row.ignored);
  if (!row.refused.empty()) return fmt::format("refused: {}", row.refused);
  return fmt::format("not built yet: {}", row.open);
}

}  // namespace

std::string explain(const std::vector<config::Account>& accounts) {
  size_t place_width = 0, key_width = 0;
  for (const config::Account& account : accounts) {
    place_width = std::max(place_width, account.source.place.size());
    key_width = std::max(key_width, account.key.size());
  }
  std::string text;
  for (const config::Account& account : accounts)
    text += fmt::format("{:<{}}  {:<{}}  {}{}\n", account.source.place, place_width, account.key, key_width,
                        account.is_ignored ? "ignored: " : "", account.text);
  return text;
}

std::string dialects_markdown() {
  std::string text =
      "# Dialects\n\n"
      "<!-- Written by `make docs` from the tables in trireme/dialects/*.cpp; edit it there. -->\n\n"
      "`--config FILE` also takes files of other systems. It recognises the system by the file's keys;\n"
      "`--config_dialect NAME` says it if it cannot. Several files count in their order, and settings on the command\n"
      "line count more than all of them; only of Trireme's own files, as convert_config writes them, what stands "
      "later\n"
      "counts. Values keep the meaning, and missing keys the default, of their own system.\n"
      "`trireme explain config MODEL --config FILE` prints what became of each key, and `trireme convert_config "
      "--config\n"
      "FILE` writes the same settings as Trireme's YAML. A key that is refused, or not built yet, may stand in a file\n"
      "with a value that asks for nothing: false, 0 or none. `docs/coming-from.md` has whole command lines.\n";
  for (const Dialect* dialect : all_dialects()) {
    text += fmt::format("\n## {}: `{}`\n\n{}\n\n| key | takes | here |\n|---|---|---|\n", dialect->system,
                        dialect->name, dialect->about);
    for (const auto& [theirs, ours] : dialect->renamed_maps)
      text += fmt::format("| `{}` | | the same as `{}` |\n", theirs, ours);
    for (const Row& row : dialect->rows)
      text += fmt::format("| `{}` | {} | {} |\n", row.key, takes_text(row), cell(fate_text(row)));
  }
  return text;
}

}  // namespace trireme::dialects
