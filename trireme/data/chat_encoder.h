// Pieces of a conversation as token ids, each with whether training learns it.
//
// Every piece is encoded by itself: no token lies half in a message and half in what stands around it, even where the
// tokenizer would merge over the boundary, so the mask is exact for templates without special tokens, too. Content is
// encoded so that no special token and no mark of the template ever comes out of it, whatever it says.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/chat_template.h"
#include "trireme/data/tokenizer.h"

namespace trireme::data {

/// Ids, and for each 1 where it is to be learned.
struct ChatTokens {
  std::vector<int32_t> ids;
  std::vector<uint8_t> mask;
};

class ChatEncoder {
 public:
  ChatEncoder(const Tokenizer& tokenizer, const ChatFamily& family);

  /// UsageError where replies end with a token that the tokenizer does not have: nobody would learn to stop.
  void require_stop() const;

  /// Several threads may call at once.
  ///
  /// Errors    UsageError: a character that the tokenizer writes with a mark of the template
  ChatTokens encode(std::span<const ChatPiece> pieces) const;

 private:
  void add_content(std::string_view text, TextBefore before, std::vector<int32_t>& ids) const;
  void add_in_parts(std::string_view text, TextBefore before, std::span<const int32_t> forged,
                    std::vector<int32_t>& ids) const;
  bool is_mark(int32_t id) const;

  const Tokenizer& tokenizer_;
  const ChatFamily& family_;
  std::vector<int32_t> marks_;
  std::vector<int32_t> begin_, end_;
};

}  // namespace trireme::data
