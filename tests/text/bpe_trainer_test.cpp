#include "trireme/text/bpe_trainer.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "tests/data/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/data/train_tokenizer.h"
#include "trireme/text/load_tokenizer.h"

namespace trireme::text {
namespace {

using Pieces = std::vector<std::pair<std::string, int64_t>>;

std::vector<std::string> merges_of(const TrainedBpe& trained) {
  std::vector<std::string> out;
  for (const auto& [left, right] : trained.merges)
    out.push_back(trained.tokens[static_cast<size_t>(left)] + " " + trained.tokens[static_cast<size_t>(right)]);
  return out;
}

TEST(BpeTrainer, merges_what_occurs_most_and_the_smaller_ids_among_equals) {
  const TrainedBpe trained =
      train_bpe({{"hug", 10}, {"pug", 5}, {"pun", 12}, {"bun", 4}, {"hugs", 5}}, {.vocab_size = 257 + 4});
  EXPECT_EQ(merges_of(trained), (std::vector<std::string>{"u g", "u n", "h ug", "p un"}));
  EXPECT_EQ(trained.tokens[0], "<|endoftext|>");
  EXPECT_EQ(merges_of(train_bpe({{"ab", 3}, {"cd", 3}}, {.vocab_size = 258})), (std::vector<std::string>{"a b"}));
}

TEST(BpeTrainer, runs_of_one_letter_merge_from_the_left) {
  EXPECT_EQ(merges_of(train_bpe({{"aaaaa", 2}}, {.vocab_size = 300})),
            (std::vector<std::string>{"a a", "aa a", "aa aaa"}));
}

TEST(BpeTrainer, stops_below_the_least_frequency_and_without_pairs) {
  EXPECT_TRUE(merges_of(train_bpe({{"ab", 1}}, {.vocab_size = 300})).empty());
  EXPECT_EQ(merges_of(train_bpe({{"ab", 1}}, {.vocab_size = 300, .min_frequency = 1})).size(), 1u);
}

TEST(BpeTrainer, order_of_pieces_and_threads_change_nothing) {
  Pieces pieces;
  for (int i = 0; i < 50000; ++i) pieces.emplace_back(std::to_string(i * 7919) + "ab", i % 13 + 1);
  const auto expected = merges_of(train_bpe(pieces, {.vocab_size = 600, .threads = 1}));
  EXPECT_EQ(merges_of(train_bpe(pieces, {.vocab_size = 600, .threads = 3})), expected);
  std::reverse(pieces.begin(), pieces.end());
  EXPECT_EQ(merges_of(train_bpe(pieces, {.vocab_size = 600, .threads = 3})), expected);
}

TEST(BpeTrainer, refuses_vocabularies_without_room_and_doubled_tokens) {
  EXPECT_THROW(train_bpe({}, {.vocab_size = 256}), UsageError);
  EXPECT_THROW(train_bpe({}, {.vocab_size = 5'000'000}), UsageError);
  EXPECT_THROW(train_bpe({}, {.vocab_size = 300, .special_tokens = {"<a>", "<a>"}}), UsageError);
}

TEST(TrainTokenizer, blocks_and_threads_change_no_piece) {
  std::string text;
  for (int i = 0; i < 20000; ++i)
    text += std::to_string(i * 7919) + (i % 11 == 0 ? ".\n\nIt" : i % 3 == 0 ? "\nthe" : "  it's ");
  const data::TemporaryFolder folder;
  const auto path = folder.write("numbers.txt", text);
  for (const char* name : {"gpt2", "llama3", "qwen2"}) {
    const PreTokenizer pre_tokenizer = pre_tokenizer_of(pattern_named(name));
    std::map<std::string, int64_t> whole;
    pre_tokenizer.run(text, TextBefore::nothing, [&](std::string_view piece) { ++whole[std::string(piece)]; });
    const data::TrainTokenizerResult result = data::train_tokenizer({.sources = {path.string()},
                                                                     .pattern = name,
                                                                     .bpe = {.vocab_size = 400, .threads = 3},
                                                                     .block_bytes = 1 << 14});
    EXPECT_EQ(result.num_distinct_pieces, static_cast<int64_t>(whole.size())) << name;
    EXPECT_EQ(merges_of(result.trained), merges_of(train_bpe({whole.begin(), whole.end()}, {.vocab_size = 400})));
  }
  EXPECT_THROW(data::train_tokenizer({.sources = {path.string()}, .pattern = "gpt5"}), UsageError);
}

TEST(TrainedTokenizer, what_is_written_loads_and_gives_the_trained_tokens) {
  const data::TemporaryFolder folder;
  const NamedPattern& pattern = pattern_named("llama3");
  const TrainedBpe trained = train_bpe({{" hello", 9}, {"hello", 4}}, {.vocab_size = 270});
  write_tokenizer(folder.path(), trained, pattern, false);
  EXPECT_THROW(write_tokenizer(folder.path(), trained, pattern, false), UsageError);
  const auto tokenizer = load_tokenizer(folder.path());
  const auto ids = tokenizer->encode("hello hello<|endoftext|>");
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_EQ(ids[2], 0);
  EXPECT_EQ(tokenizer->eos_id(), 0);
  EXPECT_EQ(tokenizer->decode(ids), "hello hello<|endoftext|>");
}

TEST(TrainedTokenizer, a_place_that_cannot_be_a_folder_is_refused_before_the_training) {
  const data::TemporaryFolder folder;
  const std::filesystem::path file = folder.write("text.txt", "a");
  for (const std::filesystem::path& place : {file, file / "inside"}) try {
      check_output(place, true);
      ADD_FAILURE() << place;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(file.string() + " is a file; name another --output"), std::string::npos)
          << error.what();
    }
  check_output(file.parent_path() / "new" / "folder", false);
}

TEST(TrainedTokenizer, of_two_files_that_do_not_fit_none_stays) {
  const data::TemporaryFolder folder;
  const TrainedBpe trained = train_bpe({{"hello", 4}}, {.vocab_size = 260});
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};  // tokenizer_config.json is shorter, tokenizer.json longer
  ::setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_THROW(write_tokenizer(folder / "new", trained, pattern_named("gpt2"), false), base::FileError);
  EXPECT_THROW(write_tokenizer(folder.path(), trained, pattern_named("gpt2"), false), base::FileError);
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  write_tokenizer(folder / "new", trained, pattern_named("gpt2"), false);
  const auto is_file = [](const auto& entry) { return entry.is_regular_file(); };
  EXPECT_EQ(std::ranges::count_if(std::filesystem::directory_iterator(folder / "new"), is_file), 2);
}

TEST(TrainedTokenizer, the_tokenizer_of_a_model_is_replaced_only_on_request) {
  for (const char* name : {"tokenizer_config.json", "tokenizer.model", "tekken.json", "vocab.txt", "own.tiktoken"}) {
    const data::TemporaryFolder folder;
    const std::filesystem::path file = folder.write(name, "a");
    try {
      check_output(folder.path(), false);
      ADD_FAILURE() << name;
    } catch (const UsageError& error) {
      EXPECT_EQ(std::string(error.what()).find(file.string() + " already exists"), 0u) << error.what();
    }
    check_output(folder.path(), true);
  }
  const data::TemporaryFolder folder;
  folder.write("config.json", "{}");
  check_output(folder.path(), false);
}

}  // namespace
}  // namespace trireme::text
