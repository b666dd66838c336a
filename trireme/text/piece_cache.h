// A cache from earlier pieces to their ids, because most words of a text repeat. Its size is bounded. A piece has two
// possible places, and a new piece replaces an old one there. When the buffer of strings or of ids is full, the cache
// is cleared.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "trireme/base/mix64.h"

namespace trireme::text {

class PieceCache {
 public:
  static constexpr size_t kLongestPiece = 128;

  /// The hash that find and insert take for `piece`. It decides the piece's place.
  static uint64_t hash(std::string_view piece) {
    uint64_t hash = piece.size() * 0x9E3779B97F4A7C15u;
    size_t at = 0;
    for (; at + 8 <= piece.size(); at += 8) {
      uint64_t word;
      std::memcpy(&word, piece.data() + at, 8);
      hash = (hash ^ word) * 0xBF58476D1CE4E5B9u;
      hash ^= hash >> 32;
    }
    uint64_t word = 0;
    if (at < piece.size()) std::memcpy(&word, piece.data() + at, piece.size() - at);
    return base::mix64(hash ^ word);
  }

  /// The ids of `piece`, valid until the next insert; nothing if it is not cached.
  std::optional<std::span<const int32_t>> find(std::string_view piece, uint64_t hash) const {
    for (const size_t at : {hash & kMask, (hash & kMask) ^ 1}) {
      const Slot& slot = slots_[at];
      if (slot.hash == hash && slot.text_bytes == piece.size() &&
          std::memcmp(text_.data() + slot.text, piece.data(), piece.size()) == 0)
        return std::span(ids_).subspan(slot.ids, slot.num_ids);
    }
    return std::nullopt;
  }

  void insert(std::string_view piece, uint64_t hash, std::span<const int32_t> ids) {
    if (piece.size() > kLongestPiece) return;
    if (text_.size() + piece.size() > kMostBytes || ids_.size() + ids.size() > kMostBytes / sizeof(int32_t)) {
      slots_.assign(slots_.size(), {});
      text_.clear();
      ids_.clear();
    }
    size_t at = hash & kMask;
    if (slots_[at].text_bytes != 0) at ^= 1;
    slots_[at] = {hash, static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(ids_.size()),
                  static_cast<uint16_t>(piece.size()), static_cast<uint16_t>(ids.size())};
    text_.insert(text_.end(), piece.begin(), piece.end());
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t text = 0, ids = 0;
    uint16_t text_bytes = 0, num_ids = 0;
  };
  static constexpr size_t kMask = (size_t{1} << 16) - 1;
  static constexpr size_t kMostBytes = size_t{8} << 20;

  std::vector<Slot> slots_ = std::vector<Slot>(kMask + 1);
  std::vector<char> text_;
  std::vector<int32_t> ids_;
};

}  // namespace trireme::text
