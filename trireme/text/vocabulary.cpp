#include "trireme/text/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/text/byte_alphabet.h"

namespace trireme::text {

void Vocabulary::add(std::string_view token, int64_t id) {
  if (id < 0 || id > kLargestTokenId)
    throw UsageError(fmt::format("the token '{}' has the id {}, which is not in 0 to {}", token, id, kLargestTokenId));
  const auto [at, is_new] = id_of_.emplace(std::string(token), static_cast<int32_t>(id));
  if (!is_new) throw UsageError(fmt::format("the token '{}' is there twice, as {} and {}", token, at->second, id));
  const auto size = static_cast<size_t>(id) + 1;
  if (size > tokens_.capacity())  // never more than the largest id needs
    tokens_.reserve(std::clamp(tokens_.capacity() * 2, size, static_cast<size_t>(kLargestTokenId) + 1));
  if (size > tokens_.size()) tokens_.resize(size);
  if (!tokens_[static_cast<size_t>(id)].empty())
    throw UsageError(
        fmt::format("the id {} belongs to two tokens, '{}' and '{}'", id, tokens_[static_cast<size_t>(id)], token));
  tokens_[static_cast<size_t>(id)] = at->first;
}

ByteTokens Vocabulary::byte_tokens(bool as_letters) const {
  ByteTokens tokens;
  for (size_t byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    const auto id = find(as_letters ? to_byte_letters({&text, 1}) : fmt::format("<0x{:02X}>", byte));
    tokens.id[byte] = id.value_or(-1);
    tokens.is_complete = tokens.is_complete && id;
  }
  return tokens;
}

bool ByteTokens::append(std::string_view text, std::vector<int32_t>& out) const {
  const auto id_of = [&](char byte) { return id[static_cast<unsigned char>(byte)]; };
  if (std::ranges::any_of(text, [&](char byte) { return id_of(byte) < 0; })) return false;
  for (const char byte : text) out.push_back(id_of(byte));
  return true;
}

}  // namespace trireme::text
