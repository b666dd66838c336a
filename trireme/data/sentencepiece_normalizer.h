// SentencePiece's normaliser: the compiled character map, white space joined and written as U+2581, a space in front.
#pragma once

#include <array>
#include <bitset>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/data/byte_trie.h"
#include "trireme/data/charsmap.h"
#include "trireme/data/sentencepiece_file.h"

namespace trireme::data {

class SentencePieceNormalizer {
 public:
  explicit SentencePieceNormalizer(const SentencePieceFile& file);

  /// `is_inside`: the text goes on from other text, so that its first space is kept and none is put before it.
  std::string operator()(std::string_view text, bool is_inside = false) const;

 private:
  struct Step {
    size_t length;
    std::string_view text;
  };
  Step step(std::string_view text) const;
  /// Bytes that `text` begins with and that stay as they are.
  size_t plain_run(std::string_view text) const;

  std::optional<Charsmap> charsmap_;
  ByteTrie user_defined_;  // left as they are
  std::array<std::bitset<128>, 128> plain_;  ///< by an ASCII character and the next: does the first stay as it is?
  bool has_user_defined_ = false, add_prefix_, join_spaces_, escape_;
};

}  // namespace trireme::data
