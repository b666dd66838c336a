#include "trireme/text/normalizer.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <new>

#include "trireme/base/error.h"
#include "trireme/text/unicode_classes.h"

namespace trireme::text {
namespace {

// PyPI's tokenizers has the normal forms of Unicode 9.0: a newer character stays, and no other moves past it.
bool is_newer(char32_t code) { return code >= 0x560 && category_in_unicode_9(code) == Category::Cn; }

struct Lower {
  char32_t from, to;
};
constexpr Lower kNewerLower[] = {
#include "trireme/text/lower_case_newer.inc"
};

char32_t lower(char32_t code) {
  const auto* newer = std::lower_bound(std::begin(kNewerLower), std::end(kNewerLower), code,
                                       [](const Lower& pair, char32_t c) { return pair.from < c; });
  if (newer != std::end(kNewerLower) && newer->from == code) return newer->to;
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::string to_known_normal_form(std::string_view text, NormalForm form) {
  if (text.empty() || is_ascii(text)) return std::string(text);
  const int options = UTF8PROC_STABLE |
                      (form == NormalForm::nfc || form == NormalForm::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                      (form == NormalForm::nfkc || form == NormalForm::nfkd ? UTF8PROC_COMPAT : 0);
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &result, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(result, std::free);
  if (bytes == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  if (bytes < 0) return std::string(text);  // ill-formed: has no normal form
  return {reinterpret_cast<const char*>(result), static_cast<size_t>(bytes)};
}

bool is_bert_control(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  using enum Category;
  return (mask_of(category_in_unicode_8(c)) & (mask_of(Cc) | mask_of(Cf) | mask_of(Co) | mask_of(Cs))) != 0;
}

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

}  // namespace

std::string Normalizer::operator()(std::string_view text, bool is_inside) const {
  std::string out = is_identity() ? std::string(text) : well_formed(text);
  for (const Step& step : steps_) {
    out = (is_inside ? step.inside : step.step)(std::move(out));
    check_growth(text.size(), out.size());
  }
  return out;
}

void check_growth(size_t before, size_t now) {
  if (now > (size_t{1} << 20) + 16 * before)
    throw UsageError(fmt::format("the tokenizer's replacements make {} bytes and more of {}", now, before));
}

std::string to_normal_form(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  std::string out;
  size_t done = 0;
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    if (!is_newer(c)) return;
    const auto at = static_cast<size_t>(bytes.data() - text.data());
    out += to_known_normal_form(text.substr(done, at - done), form);
    out += bytes;
    done = at + bytes.size();
  });
  return out += to_known_normal_form(text.substr(done), form);
}

std::string to_lower(std::string_view text) {
  std::string out;
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    if (c == kIllFormed) {
      out += bytes;
    } else if (c == 0x130) {  // the one character whose lower case is two
      out += "i\xCC\x87";
    } else {
      append_utf8(out, lower(c));
    }
  });
  return out;
}

std::string to_title(std::string_view character) {
  std::string out;
  for_each_character(character, [&](char32_t c, std::string_view bytes) {
    if (c == kIllFormed)
      out += bytes;
    else
      append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  });
  return out;
}

std::string strip_accents(std::string_view text) {
  std::string out;
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    if ((mask_of(category_in_unicode_9(c)) & kMarks) == 0) out += bytes;
  });
  return out;
}

std::string_view strip_spaces(std::string_view text, bool left, bool right) {
  const char *begin = text.data(), *end = begin + text.size();
  while (left && begin != end && is_space(character_at(begin, end).code)) begin += character_at(begin, end).bytes;
  while (right && begin != end && is_space(character_before(begin, end).code))
    end -= character_before(begin, end).bytes;
  return {begin, end};
}

std::string replace_all(std::string_view text, std::string_view what, std::string_view with) {
  std::string out;
  const size_t bytes = text.size();
  while (!what.empty()) {
    const size_t at = text.find(what);
    if (at == std::string_view::npos) break;
    out += text.substr(0, at);
    out += with;
    check_growth(bytes, out.size());
    text.remove_prefix(at + what.size());
  }
  return out += text;
}

std::string bert_normalize(std::string_view text, const BertOptions& options) {
  std::string out;
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    if (options.clean_text && (c == 0 || c == 0xFFFD || is_bert_control(c))) return;
    const bool is_chinese_word = options.handle_chinese_chars && is_chinese(c);
    if (is_chinese_word) out += ' ';
    out += options.clean_text && is_space(c) ? " " : bytes;
    if (is_chinese_word) out += ' ';
  });
  if (options.strip_accents) {
    std::string kept;
    const std::string decomposed = to_normal_form(out, NormalForm::nfd);
    for_each_character(decomposed, [&](char32_t c, std::string_view bytes) {
      if (category_in_unicode_8(c) != Category::Mn) kept += bytes;
    });
    out = std::move(kept);
  }
  return options.lowercase ? to_lower(out) : out;
}

}  // namespace trireme::text
