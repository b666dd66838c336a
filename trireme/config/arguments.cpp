#include "trireme/config/arguments.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace trireme::config {
namespace {

bool is_key_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
}

// The place of the '=' in a bare key=value; npos for paths, prompts and the like.
size_t assignment_in(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) return std::string_view::npos;
  std::string_view key = text.substr(0, equals);
  key.remove_prefix(std::min(key.find_first_not_of('+'), key.size()));  // Hydra's +experiment=quick
  return !key.empty() && std::all_of(key.begin(), key.end(), is_key_letter) ? equals : std::string_view::npos;
}

}  // namespace

bool is_truth_word(std::string text) {
  constexpr std::array<std::string_view, 7> kWords = {"true", "false", "yes", "no", "on", "off", "null"};
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::find(kWords.begin(), kWords.end(), text) != kWords.end();
}

namespace {

Argument make(Argument::Kind kind, std::string key, std::string text, std::string typed) {
  Argument argument{.kind = kind, .given = {}};
  argument.given.key = std::move(key);
  argument.given.text = std::move(text);
  argument.given.source = {Source::Kind::command_line, "command line", std::move(typed)};
  return argument;
}

}  // namespace

std::vector<Argument> split_arguments(std::span<const std::string> arguments,
                                      const std::function<bool(const std::string&)>& is_flag, bool takes_rest) {
  std::vector<Argument> result;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& typed = arguments[i];
    if (takes_rest && (typed == "--" || typed.size() < 2 || typed[0] != '-')) {
      for (const std::string& word : arguments.subspan(typed == "--" ? i + 1 : i))
        result.push_back(make(Argument::Kind::positional, "", word, word));
      break;
    }
    if (typed == "-h" || typed == "--help") {
      result.push_back(make(Argument::Kind::help, "", "", typed));
      continue;
    }
    const bool named = typed.size() > 1 && typed[0] == '-' && !(typed[1] >= '0' && typed[1] <= '9');
    const std::string bare = named ? typed.substr(typed.find_first_not_of('-') == 1 ? 1 : 2) : typed;
    const size_t equals = named ? bare.find('=') : assignment_in(bare);
    if (!named && equals == std::string::npos) {
      result.push_back(make(Argument::Kind::positional, "", typed, typed));
      continue;
    }
    const size_t begin = named ? 0 : bare.find_first_not_of('+');  // Hydra's +experiment=quick
    const std::string key = bare.substr(begin, equals == std::string::npos ? equals : equals - begin);
    const Argument::Kind kind = key == "config"           ? Argument::Kind::config
                                : key == "config_dialect" ? Argument::Kind::config_dialect
                                                          : Argument::Kind::setting;
    if (equals != std::string::npos) {
      result.push_back(make(kind, key, bare.substr(equals + 1), typed));
      continue;
    }
    const bool more = i + 1 < arguments.size() && arguments[i + 1].substr(0, 2) != "--";
    if (more && (!is_flag(key) || is_truth_word(arguments[i + 1]))) {
      result.push_back(make(kind, key, arguments[i + 1], typed + " " + arguments[i + 1]));
      ++i;
    } else {
      result.push_back(make(kind, key, "", typed));
      result.back().has_value = false;
    }
  }
  return result;
}

}  // namespace trireme::config
