#include "trireme/checkpoint/byte_alphabet.h"

#include <array>
#include <cstdint>
#include <functional>
#include <set>

namespace trireme::checkpoint {
namespace {

/// Printable bytes are themselves; the rest are U+0100 and up, in order.
const std::array<std::string, 256>& alphabet() {
  static const std::array<std::string, 256> spelled = [] {
    std::array<std::string, 256> result;
    int next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool visible = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      const int point = visible ? byte : next++;
      if (point < 0x80) {
        result[static_cast<size_t>(byte)] = std::string(1, static_cast<char>(point));
      } else {
        result[static_cast<size_t>(byte)] = {static_cast<char>(0xc0 | point >> 6),
                                             static_cast<char>(0x80 | (point & 0x3f))};
      }
    }
    return result;
  }();
  return spelled;
}

}  // namespace

bool in_byte_alphabet(std::string_view text) {
  static const std::set<std::string, std::less<>> characters(alphabet().begin(), alphabet().end());
  for (size_t i = 0; i < text.size();) {
    const size_t length = static_cast<uint8_t>(text[i]) < 0x80 ? 1 : 2;  // none of the alphabet is longer
    if (!characters.contains(text.substr(i, length))) return false;
    i += length;
  }
  return true;
}

std::string spell_bytes(std::string_view text) {
  std::string result;
  for (const char c : text) result += alphabet()[static_cast<uint8_t>(c)];
  return result;
}

}  // namespace trireme::checkpoint
