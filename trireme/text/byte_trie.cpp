#include "trireme/text/byte_trie.h"

#include <algorithm>
#include <iterator>
#include <list>

namespace trireme::text {

/// Gives each node's children their places, depth first.
class ByteTrie::Builder {
 public:
  Builder(const std::vector<Entry>& sorted, std::vector<Node>& nodes) : entries_(sorted), nodes_(nodes) {
    add_block();
    nodes_[0].parent = kRoot;
    std::vector<Open> open{{.node = 0, .begin = 0, .end = entries_.size(), .depth = 0}};
    while (!open.empty()) {
      const Open o = open.back();
      open.pop_back();
      expand(o, open);
    }
  }

 private:
  static constexpr int32_t kFree = -1, kRoot = -2, kBlock = 256;
  static constexpr int kMostFailures = 64;

  struct Block {
    int32_t begin;
    int failures = 0;
  };

  /// A node and the entries below it, which agree in their first `depth` bytes.
  struct Open {
    int32_t node;
    size_t begin, end, depth;
  };

  void expand(Open o, std::vector<Open>& open) {
    for (; o.begin < o.end && entries_[o.begin].first.size() == o.depth; ++o.begin)
      nodes_[static_cast<size_t>(o.node)].value = entries_[o.begin].second;
    if (o.begin == o.end) return;
    labels_.clear();
    const auto byte_of = [&](size_t i) { return static_cast<unsigned char>(entries_[i].first[o.depth]); };
    for (size_t i = o.begin; i < o.end; ++i)
      if (labels_.empty() || labels_.back() != byte_of(i)) labels_.push_back(byte_of(i));
    const int32_t base = find_base();
    nodes_[static_cast<size_t>(o.node)].base = base;
    for (size_t i = o.begin; i < o.end;) {
      const unsigned char label = byte_of(i);
      size_t end = i;
      while (end < o.end && byte_of(end) == label) ++end;
      const int32_t child = base ^ label;
      nodes_[static_cast<size_t>(child)].parent = o.node;
      open.push_back({child, i, end, o.depth + 1});
      i = end;
    }
  }

  /// A base with a free place for each of labels_. A block in which too many searches failed counts as full.
  int32_t find_base() {
    for (auto block = blocks_.begin(); block != blocks_.end();) {
      for (int32_t place = block->begin; place < block->begin + kBlock; ++place) {
        if (!is_free(place)) continue;
        const int32_t base = place ^ labels_.front();
        if (std::all_of(labels_.begin(), labels_.end(), [&](unsigned char c) { return is_free(base ^ c); }))
          return base;
      }
      block = ++block->failures == kMostFailures ? blocks_.erase(block) : std::next(block);
    }
    add_block();
    return blocks_.front().begin;
  }

  bool is_free(int32_t place) const { return nodes_[static_cast<size_t>(place)].parent == kFree; }

  void add_block() {
    blocks_.push_front({static_cast<int32_t>(nodes_.size())});
    nodes_.resize(nodes_.size() + kBlock);
  }

  const std::vector<Entry>& entries_;
  std::vector<Node>& nodes_;
  std::list<Block> blocks_;            // that have room, the newest first
  std::vector<unsigned char> labels_;  // of the children of the current node, ascending
};

ByteTrie::ByteTrie(std::vector<Entry> entries) {
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.first < b.first; });
  Builder(entries, nodes_);
}

}  // namespace trireme::text
