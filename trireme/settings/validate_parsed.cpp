#include <fmt/format.h>

#include <cctype>
#include <string>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/value.h"
#include "trireme/settings/derived.h"
#include "trireme/settings/parse.h"
#include "trireme/settings/validate.h"

namespace trireme {
namespace {

bool is_of_keys(char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; }

/// Whether `text` names `key`, and not only a longer one that begins or ends so.
bool names_key(std::string_view text, std::string_view key) {
  for (size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
    const std::string_view before = text.substr(0, at), after = text.substr(at + key.size());
    if (!before.empty() && (is_of_keys(before.back()) || before.back() == '.')) continue;
    if (after.empty() || (after[0] == '.' ? after.size() == 1 || !is_of_keys(after[1]) : !is_of_keys(after[0])))
      return true;
  }
  return false;
}

}  // namespace

void validate(const ParsedSettings& parsed) try {
  const int64_t ranks = world_size(parsed.settings);
  validate(parsed.settings, ranks), validate_backend(parsed.settings, ranks);
  validate_shown_ranks(parsed.settings, ranks);
} catch (const UsageError& refusal) {
  std::string text = refusal.what();
  const std::string refused = text;
  Settings now = parsed.settings, defaults;
  const config::Table table = declare(now), fresh = declare(defaults);
  for (const auto& [key, source] : parsed.provenance) {
    const config::Setting* setting = table.find(key);
    if (source.kind != config::Source::Kind::checkpoint || setting == nullptr) continue;
    const std::string value = config::value_text(*setting), reset = config::value_text(*fresh.find(key));
    // "model" and "pipeline" are words, too.
    const bool is_named =
        names_key(refused, key.find('.') == std::string::npos ? fmt::format("{} {}", key, value) : key);
    if (is_named && value != reset && !reset.empty())
      text += fmt::format("\n  {} {} comes from the {}: --{} {} sets it back", key, value, source.place, key,
                          base::shell_quoted(reset));
  }
  throw UsageError(text);
}

}  // namespace trireme
