#include "trireme/text/utf8.h"
#include "trireme/text/unicode_classes.h"

#include <algorithm>

namespace trireme::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Length of the character that starts with `lead`; 0 if none does.
size_t character_bytes(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

// Whether `byte` may stand second after `lead`: excludes overlong forms, surrogates and above U+10FFFF.
bool may_be_second(unsigned char lead, unsigned char byte) {
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  return byte >= low && byte <= high;
}

// Number of bytes at the start of `text` that fit the character they begin; at least 1.
size_t well_formed_bytes(std::string_view text, size_t length) {
  size_t count = 1;
  while (count < std::min(length, text.size())) {
    const auto byte = static_cast<unsigned char>(text[count]);
    const bool fits = count == 1 ? may_be_second(static_cast<unsigned char>(text[0]), byte) : (byte & 0xC0) == 0x80;
    if (!fits) break;
    ++count;
  }
  return count;
}

}  // namespace

std::string_view well_formed_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Character c = character_at(text, at);
    if (c.code == kIllFormed) break;
    at += static_cast<size_t>(c.bytes);
  }
  return text.substr(0, at);
}

bool is_utf8(std::string_view text) { return well_formed_prefix(text).size() == text.size(); }

std::string well_formed(std::string_view text) {
  Utf8Stream stream;
  std::string out = stream.push(text);
  return out += stream.finish();
}

std::string Utf8Stream::push(std::string_view bytes) {
  const std::string text = waiting_.append(bytes);
  waiting_.clear();
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = std::string_view(text).substr(at);
    const size_t length = character_bytes(static_cast<unsigned char>(rest[0]));
    const size_t fitting = length == 0 ? 1 : well_formed_bytes(rest, length);
    if (fitting == length) {
      out += rest.substr(0, length);
    } else if (length != 0 && fitting == rest.size()) {
      waiting_ = rest;
      return out;
    } else {
      out += kReplacement;
    }
    at += fitting;
  }
  return out;
}

std::string Utf8Stream::finish() {
  if (waiting_.empty()) return {};
  waiting_.clear();
  return std::string(kReplacement);
}

std::string stripped(std::string_view text, const StrippedEnds& ends) {
  const auto is_blank = [](char32_t c) { return is_space(c) || (c >= 0x1C && c <= 0x1F); };
  size_t begin = 0, end = 0, at = 0;
  bool any = false;
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    if (!is_blank(c)) {
      if (!any) begin = at;
      any = true, end = at + bytes.size();
    }
    at += bytes.size();
  });
  if (!any) return {};
  if (!ends.start) begin = 0;
  return std::string(text.substr(begin, ends.end ? end - begin : std::string_view::npos));
}

}  // namespace trireme::text
