// A trie over bytes finds all stored strings that a text begins with. It is a double array: a node's child for a byte
// lies at index base XOR byte, so a step touches one place in memory. Source: Aoe, An Efficient Digital Search
// Algorithm by Using a Double-Array Structure (1989); XOR as in darts-clone.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::text {

class ByteTrie {
 public:
  using Entry = std::pair<std::string_view, int32_t>;

  ByteTrie() : ByteTrie(std::vector<Entry>()) {}
  /// Values must not be negative. If a string occurs twice, its last value counts. The strings are copied.
  explicit ByteTrie(std::vector<Entry> entries);

  /// Calls `visit(length, value)` for each string that `text` begins with, shortest first, without the empty string.
  template <typename Visit>
  void for_each_prefix(std::string_view text, Visit visit) const {
    const Node* nodes = nodes_.data();
    int32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const int32_t next = nodes[node].base ^ static_cast<unsigned char>(text[i]);
      const Node& child = nodes[next];
      if (child.parent != node) return;
      node = next;
      if (child.value >= 0) visit(i + 1, child.value);
    }
  }

 private:
  struct Node {
    int32_t base = 0, parent = -1, value = -1;  // value -1: no string ends here
  };
  class Builder;

  std::vector<Node> nodes_;  // whole blocks of 256, so that base XOR byte is always a valid index
};

}  // namespace trireme::text
