// Strings stored byte by byte, to find all that a text begins with. The edges are one hash table, so that a step costs
// one lookup whatever the alphabet.
#pragma once

#include <cstdint>
#include <string_view>

#include "trireme/data/bpe_merges.h"

namespace trireme::data {

class ByteTrie {
 public:
  /// Room for strings of `bytes` bytes together.
  explicit ByteTrie(size_t bytes = 0) : edges_(bytes + 1), value_of_(1, -1) {}

  void add(std::string_view text, int32_t value) {
    int32_t node = 0;
    for (const char byte : text) {
      const MergeTable::Merge edge = edges_.find(node, static_cast<unsigned char>(byte));
      if (edge.rank == MergeTable::kNone) {
        const auto made = static_cast<int32_t>(value_of_.size());
        value_of_.push_back(-1);
        edges_.add(node, static_cast<unsigned char>(byte), {0, made});
        node = made;
      } else {
        node = edge.id;
      }
    }
    value_of_[static_cast<size_t>(node)] = value;
  }

  /// Calls `visit(length, value)` for each string that `text` begins with, shortest first.
  template <typename Visit>
  void for_each_prefix(std::string_view text, Visit visit) const {
    int32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const MergeTable::Merge edge = edges_.find(node, static_cast<unsigned char>(text[i]));
      if (edge.rank == MergeTable::kNone) return;
      node = edge.id;
      const int32_t value = value_of_[static_cast<size_t>(node)];
      if (value >= 0) visit(i + 1, value);
    }
  }

 private:
  MergeTable edges_;  // (node, byte) -> node
  std::vector<int32_t> value_of_;
};

}  // namespace trireme::data
