#include "trireme/data/conversation_source.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "refusal.h"
#include "temporary_folder.h"
#include "tests/text/chat_vocabularies.h"
#include "trireme/base/error.h"
#include "trireme/data/unread.h"
#include "trireme/text/byte_tokenizer.h"

namespace trireme::data {
namespace {

using testing::HasSubstr;

class TokenizeConversationsTest : public testing::Test {
 protected:
  ConversationCounts run(const std::vector<std::filesystem::path>& files, const ConversationOptions& options = {},
                         const char* family = "chatml") {
    TokenSetWriter writer(folder_ / "set", tokenizer_.vocab_size(), true);
    const auto counts = tokenize_conversations(files, text::find_chat_family(family), tokenizer_, writer, options);
    writer.commit({.chat_template = family});
    return counts;
  }
  std::string error(const std::string& text, const ConversationOptions& options = {}, const char* family = "chatml") {
    try {
      run({folder_.write("bad.jsonl", text)}, options, family);
    } catch (const UsageError& e) {
      std::string text = e.what();
      const std::string folder = folder_.path().string() + "/";
      if (const size_t at = text.find(folder); at != std::string::npos) text.erase(at, folder.size());
      return text;
    }
    return "no error";
  }
  // "learned|learned" of a document of the set
  std::string learned(int64_t document) const {
    const TokenSet set = TokenSet::open(folder_ / "set");
    const int64_t first = set.document_start(document), count = set.document_start(document + 1) - first;
    std::vector<int64_t> ids(static_cast<size_t>(count));
    std::vector<uint8_t> mask(ids.size());
    set.copy(first, ids);
    set.copy_mask(first, mask);
    std::string text;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto id = static_cast<int32_t>(ids[i]);
      if (mask[i] == 1) text += tokenizer_.decode({&id, 1});
      if (mask[i] == 0 && i > 0 && mask[i - 1] == 1) text += "|";
    }
    return text;
  }

  TemporaryFolder folder_;
  text::PipelineTokenizer tokenizer_ = text::test::byte_level_tokenizer();
};

constexpr const char* kTwo =
    R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]}
{"conversations": [{"from": "human", "value": "Bye"}, {"from": "gpt", "value": "See you."}, {"from": "human", "value": "?"}]}
)";

TEST_F(TokenizeConversationsTest, EachConversationIsADocumentWithItsMask) {
  const auto counts = run({folder_.write("a.jsonl", kTwo),
                           folder_.write("b.json", R"([{"instruction": "Add", "input": "1", "output": "2"}])")});
  EXPECT_EQ(counts.conversations, 3);
  const TokenSet set = TokenSet::open(folder_ / "set");
  ASSERT_EQ(set.num_documents(), 3);
  EXPECT_EQ(set.supervised_tokens(), counts.learned);
  EXPECT_EQ(set.num_tokens(), counts.tokens);
  EXPECT_EQ(learned(0), "Hello!<|im_end|>|");
  EXPECT_EQ(learned(1), "See you.<|im_end|>|");
  EXPECT_EQ(learned(2), "2<|im_end|>|");
}

TEST_F(TokenizeConversationsTest, TheFirstOnesAreReadIfOnlySoManyAreAskedFor) {
  const auto b =
      folder_.write("b.json", R"([{"instruction": "Add", "output": "2"}, {"instruction": "No", "output": "1"}])");
  const std::vector<std::filesystem::path> files = {folder_.write("a.jsonl", kTwo), b};
  for (const int64_t most : {1, 2, 3, 9}) {
    EXPECT_EQ(run(files, {.max_documents = most}).conversations, std::min<int64_t>(most, 4));
    EXPECT_EQ(TokenSet::open(folder_ / "set").num_documents(), std::min<int64_t>(most, 4));
    EXPECT_EQ(learned(0), "Hello!<|im_end|>|");
  }
}

TEST_F(TokenizeConversationsTest, ThreadsDoNotChangeTheSet) {
  std::string lines;
  for (int i = 0; i < 3000; ++i)
    lines += fmt::format(R"({{"prompt": "{} {}", "response": "{}"}})", std::string(static_cast<size_t>(i % 300), 'q'),
                         i, std::string(static_cast<size_t>(i % 90), 'r')) +
             "\n";
  const auto file = folder_.write("many.jsonl", lines);
  const auto one = run({file});
  const uint64_t fingerprint = TokenSet::open(folder_ / "set").fingerprint();
  const auto four = run({file}, {.num_threads = 4});
  EXPECT_EQ(four.conversations, 3000);
  EXPECT_EQ(four.tokens, one.tokens);
  EXPECT_EQ(TokenSet::open(folder_ / "set").fingerprint(), fingerprint);
}

TEST_F(TokenizeConversationsTest, LongOnesAreCutOrDroppedAndCounted) {
  const std::string talk = kTwo + std::string(R"({"prompt": "x", "response": ")") + std::string(500, 'y') + "\"}\n" +
                           R"({"prompt": ")" + std::string(500, 'x') + R"(", "response": "y"})";
  const auto file = folder_.write("long.jsonl", talk);
  const auto cut = run({file}, {.max_tokens = 100});
  EXPECT_EQ(cut.conversations, 4);
  EXPECT_EQ(cut.cut, 1);
  EXPECT_EQ(cut.without_reply, 1);
  EXPECT_EQ(TokenSet::open(folder_ / "set").num_documents(), 3);
  EXPECT_THAT(tally_text(cut, cut.tokens, cut.learned),
              HasSubstr("; 1 cut at 100 tokens, 1 left out because nothing of it is learned"));
  const auto dropped = run({file}, {.max_tokens = 100, .drop_long = true});
  EXPECT_EQ(dropped.dropped, 2);
  EXPECT_EQ(TokenSet::open(folder_ / "set").num_documents(), 2);
}

TEST_F(TokenizeConversationsTest, RefusesMasksThatSayNothing) {
  EXPECT_THAT(error(R"({"messages": [{"role": "user", "content": "Hi"}]})"),
              HasSubstr("nothing would be learned from bad.jsonl: of 1 conversation"));
  // Nothing but replies, in a template that puts nothing around them.
  EXPECT_THAT(error(R"({"messages": [{"role": "assistant", "content": "Hi"}]})", {}, "llama2"),
              HasSubstr("every token of bad.jsonl would be learned"));
  EXPECT_FALSE(TokenSet::exists(folder_ / "other"));
}

TEST_F(TokenizeConversationsTest, ErrorsNameFileLineAndField) {
  EXPECT_EQ(error("{\"prompt\": \"a\", \"response\": \"b\"}\n\n{\"prompt\": \"a\", \"response\": null}"),
            "bad.jsonl:3: response is null, not text");
  EXPECT_EQ(error(R"({"prompt": "a", "response": 1})", {.format = ConversationFormat::messages}),
            "bad.jsonl:1: messages is missing");
  EXPECT_THAT(error("\n\n"), HasSubstr("bad.jsonl holds no conversation"));
}

TEST_F(TokenizeConversationsTest, FindsFilesAndTemplates) {
  folder_.write("chat/b.jsonl", kTwo);
  folder_.write("chat/a.json", R"([{"instruction": "Add", "output": "2"}])");
  folder_.write("chat/README.md", "x");
  folder_.write("model/notes.txt", "x");
  folder_.write("text/a.jsonl", R"({"text": "once"})");
  ConversationSource any, all, never;
  all.use = ConversationSource::Use::always;
  never.use = ConversationSource::Use::never;
  const auto files = any.files(folder_ / "chat");
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].filename(), "a.json");
  EXPECT_TRUE(any.files(folder_ / "text").empty());
  EXPECT_TRUE(never.files(folder_ / "chat").empty());
  EXPECT_THAT([&] { all.files(folder_ / "text"); },
              testing::ThrowsMessage<UsageError>(HasSubstr("a.jsonl:1: this is no conversation")));
  EXPECT_THROW(all.files(folder_ / "model"), UsageError);
  EXPECT_TRUE(any.files(folder_ / "model/notes.txt").empty());
  folder_.write("model/novel.txt", "\n\nIt is a truth universally acknowledged");
  EXPECT_THAT([&] { all.files(folder_ / "model/novel.txt"); },
              testing::ThrowsMessage<UsageError>(AllOf(HasSubstr("novel.txt:3: "), HasSubstr("--data TextFiles"))));
  EXPECT_THAT([&] { all.files(folder_.write("blank.jsonl", "\n\n")); },
              testing::ThrowsMessage<UsageError>(HasSubstr("blank.jsonl: the file is empty, and holds no record")));
  std::filesystem::rename(folder_.write("records.txt", std::string("\xEF\xBB\xBF ") + kTwo), folder_ / "records");
  EXPECT_EQ(all.files(folder_ / "records").size(), 1u);  // whatever its name
  EXPECT_STREQ(any.family(files).name, "alpaca");
  ConversationSource named, of_model;
  named.chat_template = "llama3";
  of_model.folder = folder_ / "model";
  EXPECT_STREQ(named.family(files).name, "llama3");
  folder_.write("model/tokenizer_config.json", R"({"chat_template": "<|im_start|>"})");
  EXPECT_STREQ(of_model.family(files).name, "chatml");
  EXPECT_THROW(any.family(any.files(folder_ / "chat/b.jsonl")), UsageError);
}

TEST_F(TokenizeConversationsTest, AFolderIsReadWithAllBelowItAndItsFirstFileThatIsNotEmptyDecides) {
  folder_.write("chat/a.jsonl", "");
  folder_.write("chat/b/deep.jsonl", kTwo);
  folder_.write("chat/c.json", R"([{"instruction": "Add", "output": "2"}])");
  folder_.write("chat/.hidden.jsonl", kTwo);
  const auto files = ConversationSource{}.files(folder_ / "chat");
  EXPECT_THAT(files, testing::ElementsAre(folder_ / "chat/b/deep.jsonl", folder_ / "chat/c.json"));
  folder_.write("empty/a.jsonl", "");
  EXPECT_TRUE(ConversationSource{}.files(folder_ / "empty").empty());
}

TEST_F(TokenizeConversationsTest, AFolderOfConversationsAndTextIsRefused) {
  const auto refusal = [&](const char* folder) {
    try {
      ConversationSource{}.files(folder_ / folder);
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string("nothing was thrown");
  };
  folder_.write("one/a.jsonl", kTwo);
  folder_.write("one/below/notes.txt", "x");
  EXPECT_THAT(refusal("one"), HasSubstr("some of these files hold conversations and some text"));
  EXPECT_THAT(refusal("one"), HasSubstr("one/below/notes.txt text. Name the files of one kind"));
  folder_.write("packed/a.json", kTwo);
  folder_.write("packed/b.json.gz", "packed");
  EXPECT_THAT(refusal("packed"), HasSubstr("holds 1 compressed file, which would be left out, such as b.json.gz"));
  folder_.write("two/a.jsonl", R"({"text": "once"})");
  folder_.write("two/b.json", R"([{"instruction": "Add", "output": "2"}])");  // no folder of text would read it
  EXPECT_THAT(refusal("two"), HasSubstr("two/b.json holds conversations"));
  ConversationSource all{.use = ConversationSource::Use::always};
  folder_.write("always/a.jsonl", kTwo);
  folder_.write("always/b.ndjson", kTwo);
  EXPECT_EQ(all.files(folder_ / "always").size(), 2u);
  EXPECT_EQ(ConversationSource{}.files(folder_ / "always").size(), 2u);
  for (const char* other : {"c.csv", "c.parquet", "c.txt"}) {
    const auto file = folder_.write(std::string("always/") + other, "x");
    EXPECT_THAT([&] { all.files(folder_ / "always"); }, testing::ThrowsMessage<UsageError>(HasSubstr(other)));
    EXPECT_THAT(refusal("always"), HasSubstr(other));
    if (file.extension() == ".csv") {
      EXPECT_THAT(refusal("always"), HasSubstr("is a table, which is not read: move it away"));
    }
    std::filesystem::remove(file);
  }
  folder_.write("three/facts.json", R"({"license": "mit"})");
  folder_.write("three/a.txt", "x");
  EXPECT_EQ(refusal("three"), "nothing was thrown");
}

TEST_F(TokenizeConversationsTest, TypedSettingsThatNoSourceReadsAreRefused) {
  run({folder_.write("chat.jsonl", kTwo)});  // makes the set
  folder_.write("a.txt", "x");
  folder_.write("records.json", R"([{"text": "once"}])");
  const auto refused = [&](const std::vector<std::string>& names, const std::string& key) {
    std::vector<std::filesystem::path> paths;
    for (const std::string& name : names) paths.push_back(folder_ / name);
    return refusal([&] { refuse_unread(paths, {}, [&](const std::string& typed) { return typed == key; }); });
  };
  for (const char* key : {"data.learn", "data.chat_template", "data.long_conversations"}) {
    EXPECT_EQ(refused({"a.txt", "chat.jsonl"}, key), "not refused");
    EXPECT_THAT(refused({"a.txt"}, key), testing::StartsWith(std::string(key) + " has no effect: "));
    EXPECT_THAT(refused({"a.txt"}, key), testing::EndsWith("a.txt holds plain text; leave it out"));
  }
  for (const char* key : {"data.learn", "data.chat_template", "data.format", "data.text_field", "data.append_eos"})
    EXPECT_THAT(
        refused({"set"}, key),
        testing::EndsWith("set is tokenized already (as chatml); tokenize the text again with it, or leave it out"));
  for (const char* key : {"data.text_field", "data.append_eos"})
    EXPECT_THAT(refused({"chat.jsonl"}, key), HasSubstr("chat.jsonl holds conversations"));
  EXPECT_EQ(refused({"a.txt"}, "data.append_eos"), "not refused");
  EXPECT_THAT(refused({"a.txt"}, "data.text_field"), HasSubstr("a.txt holds plain text"));
  EXPECT_EQ(refused({"records.json"}, "data.text_field"), "not refused");
  EXPECT_EQ(refused({"nowhere"}, "data.learn"), "not refused");
}

TEST(ConversationSource, APipeIsRefusedAsAmongTexts) {
  const TemporaryFolder folder;
  const auto pipe = folder / "chat.jsonl";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ConversationSource source;
  source.use = ConversationSource::Use::always;
  EXPECT_EQ(
      refusal([&] { source.files(pipe); }),
      pipe.string() + ": is neither a file nor a folder; only those can be read twice, as going on after a kill needs");
}

}  // namespace
}  // namespace trireme::data
