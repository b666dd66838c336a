#include "trireme/train/prompt_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/file.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "tests/data/refusal.h"
#include "tests/data/temporary_folder.h"
#include "trireme/base/files.h"
#include "trireme/text/byte_tokenizer.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/generate.h"
#include "trireme/train/trained_template.h"

namespace trireme::train {
namespace {

using namespace std::chrono_literals;

TEST(ResultFile, ASignalDoesNotEndTheWaitForAnotherProcessLock) {
  const data::TemporaryFolder folder;
  const auto path = folder / "texts.jsonl";
  const base::FileDescriptor others = base::open_file(path, O_RDWR | O_CREAT);
  ASSERT_EQ(::flock(others.get(), LOCK_EX), 0);
  struct sigaction before{}, handler{};
  handler.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGUSR2, &handler, &before), 0);
  std::atomic<bool> is_open = false;
  std::jthread waits([&] {
    const ResultFile file(path, "{}", true);
    is_open = true;
  });
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(20ms);
    ::pthread_kill(waits.native_handle(), SIGUSR2);
  }
  std::this_thread::sleep_for(100ms);
  EXPECT_FALSE(is_open);
  ::flock(others.get(), LOCK_UN);
  waits.join();
  EXPECT_TRUE(is_open);
  ::sigaction(SIGUSR2, &before, nullptr);
}

// A conversation goes on from what was shown.
TEST(ShownTokens, AStopWordAndWhatFollowsItAreLeftOut) {
  const text::ByteTokenizer tokenizer;
  const std::vector<int64_t> tokens = {1000, 1001, 1002};
  const std::vector<std::string> texts = {"Hel", "lo wo", "rld"};
  const auto shown = [&](size_t bytes) { return shown_tokens(tokenizer, tokens, texts, bytes); };
  EXPECT_THAT(shown(11), testing::ElementsAre(1000, 1001, 1002));
  EXPECT_THAT(shown(8), testing::ElementsAre(1000, 1001));
  EXPECT_THAT(shown(5), testing::ElementsAre(1000, 'l', 'o'));
  EXPECT_THAT(shown(0), testing::IsEmpty());
  const std::vector<std::string> divided = {"a", "", "\u00e9x"};  // a character of two tokens
  EXPECT_THAT(shown_tokens(tokenizer, tokens, divided, 1), testing::ElementsAre(1000));
  EXPECT_THAT(shown_tokens(tokenizer, tokens, divided, 3), testing::ElementsAre(1000, 0xC3, 0xA9));
}

TEST(StopWords, AWordThatIsThereCountsMoreThanOneThatMayBegin) {
  StopWords both({"t", "e tulip"});
  EXPECT_EQ(both.push("like t") + both.finish(), "like ");
  EXPECT_TRUE(both.found());
  StopWords longer({"e tulip", "t"});
  EXPECT_EQ(longer.push("lik"), "lik");
  EXPECT_EQ(longer.push("e"), "") << "it may begin a word";
  EXPECT_EQ(longer.push(" t") + longer.finish(), "e ");
  StopWords none({"tulip"});
  EXPECT_EQ(none.push("a tu") + none.push("ba") + none.push("t") + none.finish(), "a tubat");
}

TEST(Prompts, ACompressedFileIsRefusedAsSuch) {
  const data::TemporaryFolder folder;
  const auto file = folder.write("prompts.jsonl.gz", "\x1F\x8B\x08");
  EXPECT_THAT(data::refusal([&] { read_prompts(file, "generate.prompts"); }),
              testing::HasSubstr("is compressed (gzip)"));
}

TEST(Prompts, KeysOfResultsAreFreeWhereNoResultsAreWritten) {
  const data::TemporaryFolder folder;
  const auto file = folder.write("prompts.jsonl", R"({"prompt": "It is", "index": 7, "text": "a fact"})");
  EXPECT_THAT(data::refusal([&] { read_prompts(file, "generate.prompts"); }),
              testing::HasSubstr("\"index\" is a key of the results; rename it"));
  const std::vector<Prompt> prompts = read_prompts(file, "grpo.prompts", ResultKeys::others);
  EXPECT_EQ(prompts.at(0).others, nlohmann::ordered_json({{"index", 7}, {"text", "a fact"}}));
}

// TRL's files of prompts have the conversation under "prompt".
TEST(Prompts, AConversationMayStandUnderPrompt) {
  const data::TemporaryFolder folder;
  const auto file = folder / "prompts.jsonl";
  base::write_file_atomic(file, R"({"prompt": [{"role": "user", "content": "What?"}], "answer": "4"})"
                                "\n"
                                R"({"prompt": "It is"})");
  const std::vector<Prompt> prompts = read_prompts(file, "generate.prompts");
  ASSERT_EQ(prompts.size(), 2);
  ASSERT_EQ(prompts[0].messages.size(), 1);
  EXPECT_EQ(prompts[0].messages[0].content, "What?");
  EXPECT_EQ(prompts[0].others, nlohmann::ordered_json({{"answer", "4"}}));
  EXPECT_EQ(prompts[1].text, "It is");
}

TEST(Prompts, AJsonListIsReadAsLinesAre) {
  const data::TemporaryFolder folder;
  const auto file =
      folder.write("prompts.json", "[\n  {\"prompt\": \"It is\"},\n  {\"prompt\": \"We are\", \"answer\": 4}\n]\n");
  const std::vector<Prompt> prompts = read_prompts(file, "generate.prompts");
  ASSERT_EQ(prompts.size(), 2);
  EXPECT_EQ(prompts[0].text, "It is");
  EXPECT_EQ(prompts[1].text, "We are");
  EXPECT_EQ(prompts[1].line, 3);
  base::write_file_atomic(file, "[{\"prompt\": 1}]");
  EXPECT_THAT(data::refusal([&] { read_prompts(file, "generate.prompts"); }),
              testing::HasSubstr("prompts.json:1 (record 0): \"prompt\" is neither a text nor a list of messages"));
}

TEST(Prompts, AFileThatIsNotThereOrEmptyIsRefusedByTheNameOfItsSetting) {
  const data::TemporaryFolder folder;
  const auto file = folder / "prompts.jsonl";
  const auto refused = [&] { return data::refusal([&] { read_prompts(file, "grpo.val_prompts"); }); };
  EXPECT_THAT(refused(), testing::StartsWith("grpo.val_prompts: "));
  base::write_file_atomic(file, "\n");
  EXPECT_EQ(refused(), "grpo.val_prompts: " + file.string() + " holds no prompt");
}

TEST(Prompts, MessagesAreReadAsInFilesOfData) {
  const data::TemporaryFolder folder;
  const auto file = folder / "prompts.jsonl";
  const auto refused = [&](const std::string& line) {
    base::write_file_atomic(file, line);
    return data::refusal([&] { read_prompts(file, "generate.prompts"); });
  };
  const std::string place = file.string() + ":1: ", not_built = " is not built; leave it out";
  EXPECT_THAT(refused(R"({"messages": [{"role": "user", "content": "a"}], "tools": ["w"]})"),
              testing::StartsWith(place + "tools" + not_built));
  EXPECT_THAT(refused(R"({"messages": [{"role": "user", "content": "a"}], "system": "w"})"),
              testing::StartsWith(place + "system is not read beside a prompt"));
  EXPECT_THAT(refused(R"({"prompt": [{"role": "assistant", "content": "", "tool_calls": ["w"]}]})"),
              testing::StartsWith(place + "messages[0].tool_calls" + not_built));
  EXPECT_THAT(refused(R"({"messages": []})"), testing::StartsWith(place + "messages is empty"));
  EXPECT_THAT(refused(R"({"prompt": 3})"), testing::StartsWith(place + "\"prompt\" is neither a text nor a list"));
}

void write_checkpoint(const std::filesystem::path& folder, const std::string& chat_template) {
  std::filesystem::create_directories(folder);
  base::write_file_atomic(folder / "trireme_state.json", to_json({.step = 1, .chat_template = chat_template}));
}

TEST(Prompts, AModelIsAskedInTheTemplateThatItWasTrainedIn) {
  const data::TemporaryFolder folder;
  const std::filesystem::path model = folder / "model", adapter = folder / "adapter", plain = folder / "plain";
  write_checkpoint(model, "alpaca");
  write_checkpoint(adapter, "vicuna");
  write_checkpoint(plain, "");
  EXPECT_STREQ(chat_family({}, model, "").name, "alpaca");
  EXPECT_STREQ(chat_family({}, model, adapter).name, "vicuna");
  EXPECT_STREQ(chat_family({}, model, plain).name, "alpaca");
  EXPECT_THAT(data::refusal([&] { chat_family({}, plain, ""); }), testing::EndsWith("name one with --chat_template"));
  EXPECT_THAT(data::refusal([&] { chat_family({}, plain, "", "grpo.chat_template"); }),
              testing::EndsWith("name one with grpo.chat_template"));
  base::write_file_atomic(model / "tokenizer_config.json", R"({"chat_template": "<|im_start|>"})");
  GenerateSettings named;
  EXPECT_STREQ(chat_family(named, model, "").name, "alpaca");
  EXPECT_EQ(template_of_model(model)->remark(model), "template alpaca, in which " + model.string() + " was trained");
  named.chat_template = "zephyr";
  EXPECT_STREQ(chat_family(named, model, "").name, "zephyr");
  base::write_file_atomic(plain / "tokenizer_config.json", R"({"chat_template": "<|im_start|>"})");
  EXPECT_STREQ(chat_family({}, plain, "").name, "chatml");
  EXPECT_EQ(template_of_model(plain)->remark(plain), "");
  const std::filesystem::path foreign = folder / "foreign";  // an adapter of another program
  std::filesystem::create_directories(foreign);
  base::write_file_atomic(foreign / "chat_template.jinja", "<|im_start|>");
  EXPECT_STREQ(chat_family({}, plain, foreign).name, "chatml");
  EXPECT_STREQ(chat_family({}, model, foreign).name, "alpaca");  // these are the files of its base
  base::write_file_atomic(foreign / "chat_template.jinja", "<|end|>");
  EXPECT_STREQ(chat_family({}, model, foreign).name, "phi3");
}

}  // namespace
}  // namespace trireme::train
