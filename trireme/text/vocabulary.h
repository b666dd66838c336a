// Token strings and their ids, both ways. Ids need not be contiguous.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trireme::text {

inline constexpr int64_t kLargestTokenId = (int64_t{1} << 20) - 1;

/// Lets unordered_map<string, ...> find a string_view.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

/// The tokens of single bytes.
struct ByteTokens {
  std::array<int32_t, 256> id{};  ///< -1: no token
  bool is_complete = true;        ///< every byte has a token

  /// Appends a token for each byte of `text`. False if a byte has none: then nothing is appended.
  bool append(std::string_view text, std::vector<int32_t>& out) const;
};

class Vocabulary {
 public:
  /// Errors    UsageError: an id below 0 or above kLargestTokenId, or one that two tokens share
  void add(std::string_view token, int64_t id);
  void reserve(size_t tokens) { id_of_.reserve(tokens); }

  std::optional<int32_t> find(std::string_view token) const {
    const auto at = id_of_.find(token);
    if (at == id_of_.end()) return std::nullopt;
    return at->second;
  }
  std::string_view token(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < tokens_.size() ? tokens_[static_cast<size_t>(id)] : std::string_view();
  }
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }  ///< largest id + 1
  /// The tokens of single bytes. They are written <0x41>, or with `as_letters` in GPT-2's alphabet (byte_alphabet.h).
  ByteTokens byte_tokens(bool as_letters) const;

 private:
  std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>> id_of_;
  std::vector<std::string_view> tokens_;  // by id; they point at the map's keys, which never move
};

}  // namespace trireme::text
