#include <algorithm>
#include <string>

#include "targets.h"
#include "trireme/data/conversation.h"
#include "trireme/text/byte_tokenizer.h"
#include "trireme/text/chat_encoder.h"

namespace trireme::fuzz {

/// A file of conversations, JSONL or a list; what is read is rendered with every chat template.
void fuzz_conversations(std::string_view bytes) {
  using namespace trireme::data;
  const text::ByteTokenizer tokenizer;
  RecordReader reader(bytes, "chat.json");
  while (const auto record = reader.next()) {
    const Conversation conversation = parse_conversation(record->text, reader.place(*record));
    require(!conversation.messages.empty(), "a conversation has messages");
    for (const text::ChatFamily& family : text::chat_families()) {
      const auto pieces = text::render_chat(family, conversation.messages);
      const text::ChatTokens tokens = text::ChatEncoder(tokenizer, family).encode(pieces);
      require(tokens.ids.size() == tokens.mask.size(), "there is a mask for every token");
      size_t learned = 0;
      for (const text::ChatPiece& piece : pieces)
        if (piece.is_learned) learned += piece.token == text::ChatPiece::Token::end ? 1 : piece.text.size();
      require(std::count(tokens.mask.begin(), tokens.mask.end(), uint8_t{1}) == static_cast<int64_t>(learned),
              "what is learned is what the assistant says and its end");
    }
  }
}

}  // namespace trireme::fuzz
