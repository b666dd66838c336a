// Encodes the pieces of a conversation as token ids, with a mask of the ids that training learns.
//
// Every piece is encoded by itself. So no token lies half in a message and half in the template, even where the
// tokenizer would merge across the boundary. The mask is exact for templates without special tokens too. Content never
// becomes a special token or a marker of the template, whatever its text is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/text/chat_template.h"
#include "trireme/text/tokenizer.h"

namespace trireme::text {

/// Ids, and for each id 1 if training learns it.
struct ChatTokens {
  std::vector<int32_t> ids;
  std::vector<uint8_t> mask;
};

class ChatEncoder {
 public:
  ChatEncoder(const Tokenizer& tokenizer, const ChatFamily& family);

  /// Throws UsageError if the tokenizer lacks the token that ends a reply, because the model would never learn to stop.
  void require_stop() const;

  /// Whether ChatPiece::Token::begin is a token.
  bool begins() const { return !begin_.empty(); }

  /// What stands between a user's message and the reply; empty if the template has nothing there.
  std::vector<int32_t> opening_of_reply() const;

  /// Several threads may call at once.
  ///
  /// Errors    UsageError: the tokenizer encodes a character of the content as a marker of the template
  ChatTokens encode(std::span<const ChatPiece> pieces) const;

 private:
  void add_content(std::string_view text, TextBefore before, std::vector<int32_t>& ids) const;
  void add_in_parts(std::string_view text, TextBefore before, std::span<const int32_t> forged,
                    std::vector<int32_t>& ids) const;
  bool is_mark(int32_t id) const;

  const Tokenizer& tokenizer_;
  const ChatFamily& family_;
  std::vector<int32_t> marks_;  // ids of the template's markers, which content must not contain
  std::vector<int32_t> begin_, end_;
};

}  // namespace trireme::text
