// Tokens and masks of conversations, for scripts to compare: chat_probe TOKENIZER FAMILY < conversations.jsonl prints a
// line of JSON for each: {"ids": [...], "mask": [...]}. With "for_reply": true a reply is asked for. TOKENIZER is a
// folder or file. chat_probe TOKENIZER FAMILY jinja prints the family's Jinja template. chat_probe recognise FILE
// prints the family of a Jinja template, if any.
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/data/conversation.h"
#include "trireme/text/chat_encoder.h"
#include "trireme/text/chat_template.h"
#include "trireme/text/load_tokenizer.h"

int main(int argc, char** argv) try {
  using namespace trireme::text;
  namespace data = trireme::data;
  if (argc != 3 && argc != 4)
    throw trireme::UsageError("chat_probe TOKENIZER FAMILY [jinja], or chat_probe recognise FILE");
  if (argc == 3 && std::string_view(argv[1]) == "recognise") {
    std::cout << chat_family_of_template(trireme::base::read_file(argv[2])).value_or("");
    return 0;
  }
  const auto tokenizer = load_tokenizer(argv[1]);
  const ChatFamily& family = find_chat_family(argv[2]);
  const ChatEncoder encoder(*tokenizer, family);
  if (argc == 4) {
    std::cout << jinja_of(family, encoder.begins());
    return 0;
  }
  const std::string input((std::istreambuf_iterator<char>(std::cin)), {});
  data::RecordReader reader(input, "standard input");
  while (const auto record = reader.next()) {
    const data::Conversation conversation = data::parse_conversation(record->text, reader.place(*record));
    const bool for_reply = nlohmann::json::parse(record->text).value("for_reply", false);
    const ChatTokens tokens = encoder.encode(
        render_chat(family, conversation.messages, {.for_reply = for_reply, .thinks = conversation.thinks}));
    std::cout << nlohmann::json{{"ids", tokens.ids}, {"mask", tokens.mask}} << "\n";
  }
  return 0;
} catch (const trireme::Error& error) {
  std::cerr << "error: " << error.what() << "\n";
  return 2;
}
