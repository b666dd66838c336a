#include "trireme/data/show.h"

#include <fmt/format.h>

#include "trireme/text/unicode_classes.h"
#include "trireme/text/utf8.h"

namespace trireme::data {
namespace {

constexpr const char* kReset = "\033[0m";

// ANSI colours: two alternating shades of dark green or dark grey behind the tokens.
const char* style(bool learned, bool even) {
  if (learned) return even ? "\033[97;48;5;22m" : "\033[97;48;5;28m";
  return even ? "\033[2;48;5;236m" : "\033[2;48;5;239m";
}

bool changes_terminal(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || text::category_of(c) == text::Category::Cf || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

std::string visible(std::string_view bytes) {
  std::string out;
  text::for_each_character(bytes, [&](char32_t code, std::string_view character) {
    if (code == text::kIllFormed) {
      out += fmt::format("\\x{:02X}", static_cast<unsigned char>(character[0]));
    } else if (code == '\n') {
      out += "\u21B5";
    } else if (code < 0x20) {
      text::append_utf8(out, 0x2400 + code);
    } else if (changes_terminal(code)) {
      out += fmt::format("<U+{:04X}>", static_cast<uint32_t>(code));
    } else {
      out += character;
    }
  });
  return out;
}

namespace {

std::string token(const std::string& text, bool learned, bool even, const ShowOptions& options) {
  if (options.colour) return style(learned, even) + text + kReset;
  return learned && options.has_mask ? "{" + text + "}" : "[" + text + "]";
}

}  // namespace

std::string show_tokens(const text::Tokenizer& tokenizer, std::span<const int32_t> ids, std::span<const uint8_t> mask,
                        const ShowOptions& options) {
  std::string out;
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool learned = mask.empty() || mask[i] == 1;
    const std::string bytes = tokenizer.decode({&ids[i], 1});
    std::string text = visible(bytes.empty() ? tokenizer.token_bytes(ids[i]) : bytes);
    if (text.empty()) text = fmt::format("#{}", ids[i]);  // has no text of its own
    if (options.ids) text += fmt::format(" {}", ids[i]);
    out += token(text, learned, i % 2 == 0, options);
    if (bytes.ends_with('\n')) out += "\n";
  }
  if (!out.ends_with('\n')) out += "\n";
  return out;
}

std::string show_legend(const ShowOptions& options) {
  if (!options.has_mask) return options.colour ? "shades in turn are tokens" : "[..] is a token";
  if (!options.colour) return "{..} is a token that is learned, [..] one that is not";
  return token("learned", true, true, options) + token(" token", true, false, options) + " " +
         token("not", false, true, options) + token(" learned", false, false, options) + ", shades in turn";
}

}  // namespace trireme::data
