// Turns token strings back into bytes. A decoder is a list of steps over the strings; the steps have tokenizer.json's
// names. The result is exact bytes: one byte-level token may be only a part of a character.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/text/regex.h"

namespace trireme::text {

struct DecodeByteLevel {};  ///< GPT-2's alphabet to bytes
struct DecodeReplace {
  std::variant<Regex, std::string> pattern;
  std::string content;
};
struct DecodeByteFallback {};  ///< "<0x41>" is the byte 0x41
struct DecodeMetaspace {
  std::string replacement;
  bool drop_first = true;  ///< the space that encoding put in front
};
struct DecodeStrip {
  std::string content;
  int64_t start = 0, stop = 0;  ///< the most that is removed at each end
  bool of_text = false;         ///< strips the whole text (after tokenizer.json's Fuse); false: every token
};
struct DecodeWordPiece {
  std::string prefix = "##";
  bool cleanup = true;
};
struct DecodeBpe {
  std::string suffix = "</w>";
};
struct DecodeSentencePiece {
  std::string unknown, unknown_surface;
  bool drop_first = true;  ///< the space in front of the text
  bool drop_all = false;  ///< as long as the text is empty, the space in front of each token
};
struct DecodeJoin {};  ///< no decoder in the file: one space between tokens

using DecoderStep = std::variant<DecodeByteLevel, DecodeReplace, DecodeByteFallback, DecodeMetaspace, DecodeStrip,
                                 DecodeWordPiece, DecodeBpe, DecodeSentencePiece, DecodeJoin>;

class TokenDecoder {
 public:
  void add(DecoderStep step) { steps_.push_back(std::move(step)); }

  std::string operator()(const std::vector<std::string_view>& tokens) const;

  /// What `token` adds to a text. `is_first`: the text begins with this token. Steps for the end of the text
  /// (DecodeStrip::stop, the suffix of DecodeBpe) do nothing.
  std::string one(std::string_view token, bool is_first) const;

 private:
  std::vector<DecoderStep> steps_;
};

}  // namespace trireme::text
