// SentencePiece's normaliser. It applies the character map, joins white space, writes it as U+2581 and puts a space in
// front.
#pragma once

#include <array>
#include <bitset>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/text/byte_trie.h"
#include "trireme/text/charsmap.h"
#include "trireme/text/sentencepiece_file.h"

namespace trireme::text {

class SentencePieceNormalizer {
 public:
  explicit SentencePieceNormalizer(const SentencePieceFile& file);

  /// With `is_inside`, the text continues other text: its first space is kept, and no space is put in front.
  std::string operator()(std::string_view text, bool is_inside = false) const;

 private:
  struct Step {
    size_t length;
    std::string_view text;
  };
  Step step(std::string_view text) const;
  /// How many bytes at the start of `text` stay as they are.
  size_t plain_run(std::string_view text) const;

  std::optional<Charsmap> charsmap_;
  ByteTrie user_defined_;  // user-defined tokens, which stay as they are
  std::array<std::bitset<128>, 128> plain_;  ///< [an ASCII character][the next]: does the first stay?
  bool has_user_defined_ = false, add_prefix_, join_spaces_, escape_;
};

}  // namespace trireme::text
