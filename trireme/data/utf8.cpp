#include "trireme/data/utf8.h"

#include "trireme/data/utf8_stream.h"

namespace trireme::data {

std::string_view well_formed_prefix(std::string_view text) {
  const char *begin = text.data(), *end = begin + text.size(), *at = begin;
  while (at != end) {
    const Character c = character_at(at, end);
    if (c.code == kIllFormed) break;
    at += c.bytes;
  }
  return text.substr(0, static_cast<size_t>(at - begin));
}

bool is_utf8(std::string_view text) { return well_formed_prefix(text).size() == text.size(); }

std::string well_formed(std::string_view text) {
  Utf8Stream stream;
  std::string out = stream.push(text);
  return out += stream.finish();
}

}  // namespace trireme::data
