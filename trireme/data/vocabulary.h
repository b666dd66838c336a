// Token strings and their ids, both ways. Strings lie in one buffer; ids need not be contiguous.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trireme::data {

inline constexpr int64_t kLargestTokenId = (int64_t{1} << 20) - 1;

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

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> id_of_;
  std::vector<std::string_view> tokens_;  // by id; the strings are the map's keys, which never move
};

}  // namespace trireme::data
