#include "trireme/text/byte_tokenizer.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme::text {

std::vector<int32_t> ByteTokenizer::encode(std::string_view text, const EncodeOptions&) const {
  std::vector<int32_t> ids(text.size());
  for (size_t i = 0; i < text.size(); ++i) ids[i] = static_cast<unsigned char>(text[i]);
  return ids;
}

std::string ByteTokenizer::decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  std::string text;
  text.reserve(ids.size());
  for (const int32_t id : ids) {
    if (options.drawn && id > 255) continue;
    if (id < 0 || id > 255)
      throw UsageError(fmt::format(
          "token id {} is not a byte: the byte tokenizer has ids 0 to 255; does the model have another tokenizer?",
          id));
    text += static_cast<char>(id);
  }
  return text;
}

uint64_t ByteTokenizer::fingerprint() const {
  return 0x627974652d76'0001;  // "byte-v", then the version of this mapping
}

}  // namespace trireme::text
