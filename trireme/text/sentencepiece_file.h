// SentencePiece's tokenizer.model: a protobuf message, read field by field without a protobuf library. Unknown fields
// are skipped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::text {

struct SentencePieceFile {
  enum class Type { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::normal;
  };
  std::vector<Piece> pieces;  ///< by id

  enum class Model { unigram = 1, bpe = 2, word = 3, character = 4 };
  Model model = Model::unigram;
  bool byte_fallback = false, treat_whitespace_as_suffix = false;
  int32_t bos_id = 1, eos_id = 2;
  std::string unknown_surface = " \xE2\x81\x87 ";

  std::string charsmap;  ///< compiled normaliser (charsmap.h); empty: identity
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
};

/// Errors    UsageError naming the byte at which the message is cut off
SentencePieceFile parse_sentencepiece(std::string_view bytes);

}  // namespace trireme::text
