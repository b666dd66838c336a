#include "trireme/data/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "refusal.h"
#include "temporary_folder.h"
#include "trireme/base/files.h"

namespace trireme::data {
namespace {

using testing::HasSubstr;

std::string talk_of(const Conversation& conversation) {
  std::string text;
  for (const text::ChatMessage& m : conversation.messages)
    text += m.role + ":" + m.content + (m.input.empty() ? "" : "+" + m.input) + (m.learned ? "" : "!") + ";";
  return text;
}

std::string talk_of(std::string_view record) { return talk_of(parse_conversation(record, "f.jsonl:1")); }

std::string record_refusal(std::string_view record) {
  return refusal([&] { parse_conversation(record, "f.jsonl:7"); });
}

TEST(Conversation, ReadsAllThreeForms) {
  EXPECT_EQ(talk_of(R"({"instruction": "Add.", "input": "1 2", "output": "3"})"), "user:Add.+1 2;assistant:3;");
  EXPECT_EQ(talk_of(R"({"instruction": "Hi", "output": "", "system": "Be kind."})"),
            "system:Be kind.;user:Hi;assistant:;");
  EXPECT_EQ(talk_of(R"({"prompt": "Hi", "response": "Ho"})"), "user:Hi;assistant:Ho;");
  EXPECT_EQ(talk_of(R"({"prompt": "Hi", "completion": "Ho", "id": 7})"), "user:Hi;assistant:Ho;");
  EXPECT_EQ(talk_of(R"({"conversations": [{"from": "system", "value": "S"}, {"from": "human", "value": "H"},
                        {"from": "gpt", "value": "G"}]})"),
            "system:S;user:H;assistant:G;");
  EXPECT_EQ(talk_of(R"({"messages": [{"role": "developer", "content": "S"}, {"role": "user", "content":
                        [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]},
                        {"role": "assistant", "content": "A", "weight": 0}]})"),
            "system:S;user:Hi;assistant:A!;");
}

TEST(Conversation, ReadsTheSystemMessageOfARecordInEveryForm) {
  EXPECT_EQ(
      talk_of(R"({"system": "S", "conversations": [{"from": "human", "value": "H"}, {"from": "gpt", "value": "G"}]})"),
      "system:S;user:H;assistant:G;");
  EXPECT_EQ(talk_of(R"({"system": "S", "conversations": ["H", "G"]})"), "system:S;user:H;assistant:G;");
  EXPECT_EQ(talk_of(R"({"system_prompt": "S", "messages": [{"role": "user", "content": "H"}]})"), "system:S;user:H;");
  EXPECT_EQ(talk_of(R"({"system_prompt": "S", "prompt": "H", "response": "G"})"), "system:S;user:H;assistant:G;");
  EXPECT_EQ(talk_of(R"({"system": null, "messages": [{"role": "system", "content": "S"}]})"), "system:S;");
  EXPECT_EQ(
      record_refusal(R"({"system": "S", "messages": [{"role": "system", "content": "T"}]})"),
      "f.jsonl:7: messages[0].role is a second system message: the record has one under a key of its own; leave one "
      "out");
  EXPECT_EQ(record_refusal(R"({"system": ["S"], "messages": [{"role": "user", "content": "T"}]})"),
            "f.jsonl:7: system is a list, not text");
}

TEST(Conversation, ReadsEarlierTurnsOfAlpacasForm) {
  EXPECT_EQ(
      talk_of(
          R"({"instruction": "C", "input": "x", "output": "D", "system": "S", "history": [["A", "B"], ["a", "b"]]})"),
      "system:S;user:A;assistant:B;user:a;assistant:b;user:C+x;assistant:D;");
  EXPECT_EQ(talk_of(R"({"instruction": "C", "output": "D", "history": []})"), "user:C;assistant:D;");
  for (const char* history : {R"("A")", R"([["A"]])", R"([["A", 1]])", R"({"A": "B"})"})
    EXPECT_EQ(record_refusal(std::string(R"({"instruction": "C", "output": "D", "history": )") + history + "}"),
              "f.jsonl:7: history is no list of [question, answer] pairs");
  EXPECT_THAT(record_refusal(R"({"messages": [{"role": "user", "content": "a"}], "history": [["A", "B"]]})"),
              HasSubstr("history is read in Alpaca's form only"));
}

TEST(Conversation, ReadsTheTwoPartsOfTrlAndLearnsTheSecond) {
  EXPECT_EQ(talk_of(R"({"prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "H"},
                        {"role": "assistant", "content": "A"}, {"role": "user", "content": "h"}],
                        "completion": [{"role": "assistant", "content": "a"}]})"),
            "system:S;user:H;assistant:A!;user:h;assistant:a;");
  EXPECT_EQ(record_refusal(R"({"prompt": [{"role": "user", "content": "H"}], "completion": []})"),
            "f.jsonl:7: completion is empty: a conversation has messages");
  EXPECT_EQ(record_refusal(R"({"prompt": [{"role": "user", "content": "H"}], "completion": [{"role": "system",
                               "content": "S"}]})"),
            "f.jsonl:7: completion[0].role is system behind others: it has to be the first message");
  EXPECT_EQ(record_refusal(R"({"prompt": [{"role": "user", "content": "H"}], "completion": "a"})"),
            "f.jsonl:7: prompt is a list, not text");
  EXPECT_THAT(record_refusal(R"({"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant",
                                 "content": "b"}], "history": [["A", "B"]]})"),
              HasSubstr("history is read in Alpaca's form only"));
}

TEST(Conversation, ReadsTheColumnsOfOtherSets) {
  EXPECT_EQ(talk_of(R"({"instruction": "Sum up.", "context": "A tale.", "response": "T.", "category": "c"})"),
            "user:Sum up.+A tale.;assistant:T.;");
  EXPECT_EQ(talk_of(R"({"inputs": "Hi", "targets": "Ho"})"), "user:Hi;assistant:Ho;");
  EXPECT_EQ(talk_of(R"({"conversations": ["Hi", "Ho", "Bye", "See you."]})"),
            "user:Hi;assistant:Ho;user:Bye;assistant:See you.;");
}

TEST(Conversation, KnownColumnsAreTheOnlyOnes) {
  constexpr AlpacaColumns kLongForm = {.instruction = "input", .output = "output"};
  const auto talk = [&](std::string_view record) {
    return talk_of(parse_conversation(record, "f.json:2", ConversationFormat::alpaca, kLongForm));
  };
  EXPECT_EQ(talk(R"({"input": "Write.", "output": "Long."})"), "user:Write.;assistant:Long.;");
  EXPECT_EQ(refusal([&] { talk(R"({"input": "Write.", "response": "Long."})"); }), "f.json:2: output is missing");
}

TEST(Conversation, ChatTemplateKwargsSayWhetherTheModelThinks) {
  const auto thinks = [](const std::string& given) {
    const std::string talk =
        R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])";
    return parse_conversation(talk + R"(, "chat_template_kwargs": )" + given + "}", "f.jsonl:7").thinks;
  };
  EXPECT_FALSE(thinks(R"({"enable_thinking": false})"));
  for (const char* given : {R"({"enable_thinking": true})", "{}", "null", R"({"enable_thinking": null})"})
    EXPECT_TRUE(thinks(given)) << given;
  for (const char* given : {R"({"date_string": "today"})", R"({"enable_thinking": "no"})", "[1]", R"("x")"})
    EXPECT_THAT(
        refusal([&] { thinks(given); }),
        testing::MatchesRegex("f.jsonl:7: chat_template_kwargs .*; its only variable here is enable_thinking.*"))
        << given;
}

TEST(Conversation, AReplyMayHaveItsThoughtUnderAKeyOfItsOwn) {
  const auto talk = [](const std::string& role, const std::string& key, const std::string& value) {
    return R"({"messages": [{"role": "user", "content": "a"}, {"role": ")" + role + R"(", "content": "b", ")" + key +
           "\": " + value + "}]}";
  };
  for (const char* key : {"reasoning_content", "thinking"}) {
    EXPECT_EQ(parse_conversation(talk("assistant", key, R"("Hm.")"), "f.jsonl:7").messages[1].thought, "Hm.");
    for (const char* nothing : {"null", "[]", "{}", R"("")"})
      EXPECT_EQ(parse_conversation(talk("assistant", key, nothing), "f.jsonl:7").messages[1].thought, std::nullopt);
    EXPECT_EQ(record_refusal(talk("user", key, R"("Hm.")")),
              std::string("f.jsonl:7: messages[1].") + key +
                  " is not built; leave it out, or write it into the text of a message");
    EXPECT_EQ(record_refusal(talk("assistant", key, "[1]")),
              std::string("f.jsonl:7: messages[1].") + key + " is a list, not text");
  }
}

// A reply that calls a tool has no words of its own: an empty reply would be learned.
TEST(Conversation, WhatTheModelWouldReadAndIsNotBuiltIsRefused) {
  const auto with = [](const std::string& of_reply, const std::string& of_record) {
    return R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": ")" + std::string("\"") +
           of_reply + "}]" + of_record + "}";
  };
  const std::string sentence = " is not built; leave it out, or write it into the text of a message";
  for (const char* key : {"tool_calls", "function_call"}) {
    const std::string said = std::string(", \"") + key + "\": ";
    EXPECT_EQ(record_refusal(with(said + R"([{"name": "w"}])", "")),
              std::string("f.jsonl:7: messages[1].") + key + sentence);
    for (const char* nothing : {"null", "[]", "{}", R"("")"})
      EXPECT_EQ(talk_of(with(said + nothing, "")), "user:a;assistant:;") << key << nothing;
  }
  for (const char* key : {"tools", "functions", "images"}) {
    const std::string said = std::string(", \"") + key + "\": ";
    EXPECT_EQ(record_refusal(with("", said + R"(["w"])")), std::string("f.jsonl:7: ") + key + sentence);
    for (const char* nothing : {"null", "[]", R"("[]")"})
      EXPECT_EQ(talk_of(with("", said + nothing)), "user:a;assistant:;") << key << nothing;
  }
  EXPECT_THAT(record_refusal(R"({"conversations": [{"from": "gpt", "value": "", "tool_calls": ["w"]}]})"),
              HasSubstr("f.jsonl:7: conversations[0].tool_calls is not built"));
  EXPECT_THAT(record_refusal(R"({"instruction": "a", "output": "b", "images": ["c.png"]})"),
              HasSubstr("f.jsonl:7: images is not built"));
}

TEST(Conversation, ErrorsNamePlaceAndField) {
  EXPECT_EQ(record_refusal(R"({"instruction": "x", "input": "y"})"),
            "f.jsonl:7: output is missing (or response, completion, targets)");
  EXPECT_EQ(record_refusal(R"({"instruction": "x", "output": 3})"), "f.jsonl:7: output is a number, not text");
  EXPECT_EQ(
      record_refusal(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null}]})"),
      "f.jsonl:7: messages[1].content is null, not text");
  EXPECT_EQ(record_refusal(R"({"messages": [{"role": "user"}]})"), "f.jsonl:7: messages[0].content is missing");
  EXPECT_EQ(record_refusal(R"({"conversations": [{"from": "robot", "value": "a"}]})"),
            "f.jsonl:7: conversations[0].from is \"robot\"; speakers are system, user (human) and assistant (gpt)");
  EXPECT_EQ(record_refusal(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})"),
            "f.jsonl:7: messages[0].content[0].type is not \"text\", all that is learned here");
  EXPECT_EQ(record_refusal(R"({"messages": []})"), "f.jsonl:7: messages is empty: a conversation has messages");
  EXPECT_EQ(record_refusal(R"({"messages": {"role": "user"}})"), "f.jsonl:7: messages is an object, not a list");
  EXPECT_THAT(record_refusal(R"({"text": "once"})"), HasSubstr("f.jsonl:7: this is no conversation"));
  EXPECT_EQ(record_refusal(R"({"messages": x})"), "f.jsonl:7: this is not JSON (byte 14 of the record)");
  EXPECT_THAT(record_refusal(R"({"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]})"),
              HasSubstr("messages[1].role is system behind others"));
  EXPECT_THAT(
      refusal([] { parse_conversation(R"({"prompt": "a", "response": "b"})", "x", ConversationFormat::sharegpt); }),
      HasSubstr("conversations is missing"));
}

TEST(Conversation, RecordsOfOtherFormsAreToldByTheirKeys) {
  EXPECT_THAT(record_refusal(R"({"question": "a", "answer": "b"})"),
              HasSubstr("f.jsonl:7: this is no conversation: it has answer, question, and neither messages"));
  EXPECT_THAT(record_refusal(R"({"prompt": "a", "chosen": "b", "rejected": "c"})"),
              HasSubstr("f.jsonl:7: this is a pair of replies (chosen, rejected), from which trireme finetune_dpo"));
}

TEST(Conversation, FieldsThatNobodyReadsMayHoldHugeNumbers) {
  EXPECT_EQ(talk_of(R"({"prompt": "a", "response": "b", "score": [1e999, -2E+400, 3]})"), "user:a;assistant:b;");
  EXPECT_EQ(record_refusal(R"({"prompt": "a", "response": 1e999})"), "f.jsonl:7: response is a number, not text");
}

TEST(Conversation, AKeyStandsOnce) {
  EXPECT_EQ(record_refusal(R"({"prompt": "a", "prompt": "b", "response": "c"})"),
            "f.jsonl:7: the key \"prompt\" stands twice in one object; leave one out");
  EXPECT_THAT(record_refusal(R"({"messages": [{"role": "user", "content": "a", "content": "b"}]})"),
              HasSubstr("the key \"content\" stands twice"));
  EXPECT_EQ(talk_of(R"({"prompt": "a", "x": {"prompt": 1}, "y": [{"z": 1}, {"z": 2}], "response": "c"})"),
            "user:a;assistant:c;");
}

TEST(Conversation, WhatIsNotReadBesideIsNamed) {
  const TemporaryFolder folder;
  const auto said = [&](const char* record, std::optional<ConversationFormat> format = {}) {
    return read_beside(folder.write("a.jsonl", record), format);
  };
  EXPECT_EQ(said(R"({"messages": []})"), "");
  EXPECT_EQ(said(R"({"messages": [], "text": "a", "prompt": "b", "response": "c"})"),
            "its records have instruction and output, text, too, not read: see data.format");
  EXPECT_EQ(said(R"({"messages": [], "prompt": "b", "response": "c"})", ConversationFormat::alpaca),
            "its records have messages, too, not read: see data.format");
}

std::string records_of(std::string_view text) {
  RecordReader reader(text, "f");
  std::string out;
  while (const auto record = reader.next()) out += reader.place(*record) + " " + std::string(record->text) + "|";
  return out;
}

TEST(RecordReader, CutsLinesAndLists) {
  EXPECT_EQ(records_of("\xEF\xBB\xBF{\"a\": \"}\"}\r\n\n  {\"b\": [1, {}]}  \n"),
            "f:1 {\"a\": \"}\"}|f:3 {\"b\": [1, {}]}|");
  EXPECT_EQ(records_of("[\n {\"a\":\n  \"\\\"{\"},\n {}\n]\n"),
            "f:2 (record 0) {\"a\":\n  \"\\\"{\"}|f:4 (record 1) {}|");
  EXPECT_EQ(records_of(""), "");
  EXPECT_EQ(records_of(" [ ] "), "");
}

TEST(RecordReader, RefusesWhatIsBroken) {
  const auto error = [](std::string_view text) { return refusal([&] { records_of(text); }); };
  EXPECT_EQ(
      error("{}\n{\"a\": \n1}"),
      "f:2: the JSON object that begins here does not end in its line: write each object in one line, or put all into "
      "one list [...] with commas");
  EXPECT_EQ(error("{} {}"), "f:1: the line is not one JSON object: JSONL has one in each line");
  EXPECT_EQ(error("{}\nhello"), "f:2: a record is a JSON object, such as {\"messages\": [...]}");
  EXPECT_EQ(error("[{},\n{}"), "f:2: the JSON list does not end: is the file whole?");
  EXPECT_EQ(error("[{} {}]"), "f:1: a comma or the end of the JSON list is missing here");
  EXPECT_EQ(error("[{},]"), "f:1: the JSON list ends behind a comma; remove the comma");
  EXPECT_EQ(error("[{}] x"), "f:1: the JSON list has ended, and more follows");
  EXPECT_EQ(error("{\"a\": \"\\"), "f:1: the JSON object that begins here does not end");
  EXPECT_EQ(error("{\"a\":" + std::string(40, '[')), "f:1: the record nests more than 32 deep");
  EXPECT_EQ(error("{\"a\":[" + std::string(200'000, ',')), "f:1: the record holds more than 100,000 values");
  EXPECT_EQ(error("{\"a\":\"" + std::string(9 << 20, 'x') + "\"}"),
            "f:1: the record has 9.00 MiB, more than the 8.00 MiB that a record may have");
}

TEST(Conversation, TellsItsFormAndLeavesOtherFilesAlone) {
  const TemporaryFolder folder;
  const auto format = [&](const std::string& name, const std::string& text) {
    base::write_file_atomic(folder.path() / name, text);
    return conversation_format_of(folder.path() / name);
  };
  EXPECT_EQ(format("a.json", "[{\"instruction\": \"x\", \"output\": \"y\"}]"), ConversationFormat::alpaca);
  EXPECT_EQ(format("a.jsonl", "{\"conversations\": []}\n"), ConversationFormat::sharegpt);
  EXPECT_EQ(format("b.jsonl", "{\"messages\": []}\n"), ConversationFormat::messages);
  EXPECT_EQ(format("c.jsonl", "{\"text\": \"once\"}\n"), std::nullopt);
  EXPECT_EQ(format("d.jsonl", "{\"mess"), std::nullopt);
  EXPECT_EQ(format("e.txt", "{\"messages\": []}\n"), std::nullopt);
  EXPECT_EQ(conversation_format_of(folder.path() / "missing.jsonl"), std::nullopt);
}

}  // namespace
}  // namespace trireme::data
