#include "trireme/data/tokenize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "refusal.h"
#include "temporary_folder.h"
#include "trireme/base/files.h"
#include "trireme/data/jsonl.h"
#include "trireme/data/ordered_workers.h"
#include "trireme/data/text_cut.h"
#include "trireme/text/byte_tokenizer.h"

namespace trireme::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string prose(size_t bytes) {
  static const char* const kWords[] = {
      "It", "is", "a", "truth", "universally", "acknowledged,", "that.", "12", "\xC3\xA9t\xC3\xA9"};
  std::string text;
  uint32_t state = 1;
  while (text.size() < bytes) {
    state = state * 1664525 + 1013904223;
    text += kWords[(state >> 16) % 9];
    text += (state >> 24) % 11 == 0 ? "\n\n" : (state >> 24) % 7 == 0 ? "\n" : " ";
  }
  return text;
}

// Words and what lies between them, so that a text cut inside a word, or among several blanks, gets other ids.
class RunTokenizer : public text::Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text, const text::EncodeOptions& = {}) const override {
    std::vector<int32_t> ids;
    for (size_t at = 0; at < text.size();) {
      const bool blank = std::isspace(static_cast<unsigned char>(text[at])) != 0;
      uint32_t hash = 17;
      for (; at < text.size() && (std::isspace(static_cast<unsigned char>(text[at])) != 0) == blank; ++at)
        hash = hash * 31 + static_cast<unsigned char>(text[at]);
      ids.push_back(static_cast<int32_t>(hash % 60000));
    }
    return ids;
  }
  std::string decode(std::span<const int32_t>, const text::DecodeOptions&) const override { return {}; }
  int64_t vocab_size() const override { return 60001; }
  std::string name() const override { return "runs"; }
  uint64_t fingerprint() const override { return 5; }
  std::vector<int32_t> document_separator() const override { return {60000}; }
};

class TokenizeTest : public ::testing::Test {
 protected:
  TokenizeOptions options(std::vector<std::string> sources, const std::string& output = "out") {
    return {.sources = std::move(sources), .output = folder / output, .num_threads = 3, .block_bytes = 4096};
  }
  std::vector<std::vector<int64_t>> documents(const std::string& output = "out") {
    const TokenSet set = TokenSet::open(folder / output);
    std::vector<std::vector<int64_t>> all;
    for (int64_t d = 0; d < set.num_documents(); ++d) {
      all.emplace_back(static_cast<size_t>(set.document_start(d + 1) - set.document_start(d)));
      set.copy(set.document_start(d), all.back());
    }
    return all;
  }
  std::vector<std::string> texts(const std::string& output = "out") {  // of the byte tokenizer
    std::vector<std::string> all;
    for (const auto& ids : documents(output)) all.emplace_back(ids.begin(), ids.end());
    return all;
  }
  TemporaryFolder folder;
  text::ByteTokenizer bytes;
};

TEST_F(TokenizeTest, FilesOfAllKindsAreDocumentsInTheOrderOfTheirNames) {
  folder.write("in/b.txt", "plain text");
  folder.write("in/a/z.md", "deeper");
  folder.write("in/a.jsonl",
               "{\"text\":\"one\"}\n{\"id\":[1,{\"text\":\"not\"}],\"text\":\"tw\\u006f\\n\"}\r\n\n{\"text\":\"\"}");
  folder.write("in/.hidden.txt", "not this");
  folder.write("in/picture.png", "nor this");
  folder.write("in/empty.txt", "");
  folder.write("other.dat", "named, so plain text");
  const TokenizeResult result = tokenize(options({(folder / "in").string(), (folder / "other.dat").string()}), bytes);
  EXPECT_THAT(texts(), ElementsAre("one\n", "two\n\n", "deeper\n", "plain text\n", "named, so plain text\n"));
  EXPECT_EQ(result.empty_documents, 1);
  EXPECT_EQ(result.about.source_bytes, 3 + 4 + 6 + 10 + 20);
  EXPECT_EQ(result.encoded_bytes, result.about.source_bytes);
  EXPECT_THAT(TokenSet::open(folder / "out").about()->sources.size(), 2u);
  TokenizeOptions bare = options({(folder / "in/b.txt").string()}, "bare");
  bare.append_eos = false;
  tokenize(bare, bytes);
  EXPECT_THAT(texts("bare"), ElementsAre("plain text"));
}

TEST_F(TokenizeTest, EndingsAreReadWithoutRegardToCaseAndOthersAreNamed) {
  folder.write("in/A.TXT", "one");
  folder.write("in/B.JsonL", "{\"text\":\"two\"}");
  folder.write("in/C.JSON", "[{\"text\":\"three\"}]");
  EXPECT_EQ(tokenize(options({(folder / "in").string()}), bytes).left_out, "");
  EXPECT_THAT(texts(), ElementsAre("one\n", "two\n", "three\n"));
  folder.write("in/z.csv", "a,b");
  folder.write("in/below/c.csv", "a,b");
  folder.write("in/below/empty.csv", "");
  folder.write("in/d.TXT.GZ", "packed");
  folder.write("in/d.TXT", "and not");
  folder.write("elsewhere/e.txt", "not this");
  std::filesystem::create_directory_symlink(folder / "elsewhere", folder / "in/link");
  EXPECT_EQ(tokenize(options({(folder / "in").string()}, "more"), bytes).left_out,
            "2 files left out, such as below/c.csv; 1 linked folder left out, such as link: name what it leads to");
  EXPECT_THAT(texts("more"), ElementsAre("one\n", "two\n", "three\n", "and not\n"));
  folder.write("tables/a.csv", "a,b");
  EXPECT_THAT(refusal([&] { tokenize(options({(folder / "tables").string()}, "none"), bytes); }),
              HasSubstr("no .json of records; 1 file left out, such as a.csv"));
}

TEST_F(TokenizeTest, NumbersThatNobodyReadsMayBeHuge) {
  folder.write("a.jsonl", R"({"x":1e999999,"text":"a","y":[-1E+4000, "1e999\\"]})");
  tokenize(options({(folder / "a.jsonl").string()}), bytes);
  EXPECT_THAT(texts(), ElementsAre("a\n"));
}

TEST_F(TokenizeTest, AByteOrderMarkIsNoText) {
  folder.write("in/a.txt", "\xEF\xBB\xBFshort");
  folder.write("in/b.txt", "\xEF\xBB\xBF" + prose(50'000));
  folder.write("in/c.txt", "\xEF\xBB\xBF");
  EXPECT_EQ(tokenize(options({(folder / "in").string()}), bytes).empty_documents, 1);
  EXPECT_THAT(texts(), ElementsAre("short\n", prose(50'000) + "\n"));
}

TEST_F(TokenizeTest, JsonIsReadAsRecords) {
  folder.write("in/a.jsonl", "{\"text\":\"a\"}\n");
  folder.write("in/b.json", "[\n{\"text\":\"b\"}, {\"text\":\n\"c\"}\n]\n");
  folder.write("in/c.json", "{\"text\":\"d\"}\n{\"text\":\"e\"}\n");
  folder.write("in/config.json", "{\"of\":\"something else\"}");
  folder.write("in/info.json", "{\n\"text\":\"not this\"\n}\n");
  tokenize(options({(folder / "in").string()}), bytes);
  EXPECT_THAT(texts(), ElementsAre("a\n", "b\n", "c\n", "d\n", "e\n"));
  TokenizeOptions named = options({folder.write("named.json", "{\"body\":\"f\"}").string()}, "by-name");
  named.text_field = "body";
  tokenize(named, bytes);
  EXPECT_THAT(texts("by-name"), ElementsAre("f\n"));
}

TEST_F(TokenizeTest, ALongTextInPartsHasTheIdsOfTheWhole) {
  const std::string text = prose(300'000);
  const auto path = folder.write("long.txt", text);
  const RunTokenizer runs;
  tokenize(options({path.string()}), runs);
  auto whole = runs.encode(text);
  whole.push_back(60000);
  ASSERT_EQ(documents().size(), 1u);
  EXPECT_EQ(documents()[0], std::vector<int64_t>(whole.begin(), whole.end()));
  tokenize(options({path.string()}, "bytes"), bytes);
  EXPECT_THAT(texts("bytes"), ElementsAre(text + "\n"));
}

TEST_F(TokenizeTest, TextThatCannotBeCutIsReadWhole) {
  const std::string text(50'000, 'x');
  tokenize(options({folder.write("long.txt", text).string()}), RunTokenizer());
  EXPECT_EQ(documents()[0].size(), 2u);  // one word and the end
}

TEST_F(TokenizeTest, LinesBelongToTheBlockInWhichTheyBegin) {
  std::string lines;
  std::vector<std::string> expected;
  for (int i = 0; i < 500; ++i) {
    const std::string text(static_cast<size_t>((i * 7919) % 3000) + (i % 50 == 0 ? 20'000 : 1),
                           static_cast<char>('a' + i % 26));
    lines += "{\"text\": \"" + text + "\"}\n";
    expected.push_back(text + "\n");
  }
  lines.pop_back();  // the last line without its end
  const auto path = folder.write("many.jsonl", lines);
  for (const int64_t block_bytes : {64, 1000, 4096, 1 << 20}) {
    TokenizeOptions o = options({path.string()});
    o.block_bytes = block_bytes;
    o.overwrite = true;
    tokenize(o, bytes);
    EXPECT_EQ(texts(), expected) << block_bytes;
  }
}

TEST_F(TokenizeTest, AKilledJobGoesOnToTheSameBytes) {
  std::vector<std::string> sources = {folder.write("long.txt", prose(200'000)).string()};
  for (int i = 0; i < 300; ++i)
    folder.write("many/" + std::to_string(i) + ".txt", prose(static_cast<size_t>(i) * 10 + 1));
  sources.push_back((folder / "many").string());
  const RunTokenizer runs;
  tokenize(options(sources, "straight"), runs);
  // A job that dies after each of its notes: what is thrown leaves the files as kill -9 would.
  struct Killed : base::FileError {
    Killed() : FileError("killed", "", 0) {}
  };
  std::set<int64_t> resumed_at;
  for (int life = 0; life < 1000; ++life) {
    TokenizeOptions o = options(sources);
    o.num_threads = 1 + life % 3;
    o.sync_every = std::chrono::milliseconds(0);
    o.resumed = [&](int64_t done, int64_t) { resumed_at.insert(done); };
    int blocks = 0;
    o.progress = [&](double) {
      if (++blocks == 5 + life % 4) throw Killed();
    };
    try {
      tokenize(o, runs);
      break;
    } catch (const Killed&) {
      EXPECT_FALSE(TokenSet::exists(folder / "out"));
      std::ofstream(folder / "out.bin.part", std::ios::app) << "written after the last note";
    }
  }
  EXPECT_GT(resumed_at.size(), 10u);
  for (const char* part : {".bin", ".idx", ".json"})
    EXPECT_EQ(base::read_file((folder / "out").string() + part), base::read_file((folder / "straight").string() + part))
        << part;
  EXPECT_FALSE(std::filesystem::exists(folder / "out.part"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out.bin.part"));
}

TEST_F(TokenizeTest, AnotherJobsFilesAreNeitherContinuedNorReplacedUnasked) {
  const auto path = folder.write("a.txt", prose(50'000));
  TokenizeOptions o = options({path.string()});
  o.sync_every = std::chrono::milliseconds(0);
  o.progress = [](double done) {
    if (done > 0.5) throw base::FileError("killed", "", 0);
  };
  EXPECT_THROW(tokenize(o, bytes), base::FileError);
  TokenizeOptions other = options({path.string()});
  other.append_eos = false;
  EXPECT_THAT(refusal([&] { tokenize(other, bytes); }), AllOf(HasSubstr("out.part"), HasSubstr("--overwrite")));
  other.overwrite = true;
  tokenize(other, bytes);
  EXPECT_THAT(texts(), ElementsAre(prose(50'000)));
  other.overwrite = false;
  EXPECT_THAT(refusal([&] { tokenize(other, bytes); }),
              AllOf(HasSubstr("out.idx already exists"), HasSubstr("--overwrite")));
  tokenize(options({path.string()}, "first"), bytes);
  TokenizeOptions killed = options({path.string()}, "half");
  killed.sync_every = o.sync_every, killed.progress = o.progress;
  EXPECT_THROW(tokenize(killed, bytes), base::FileError);
  const auto twin = folder.write("b.txt", prose(50'000));  // of the same size
  EXPECT_THAT(refusal([&] { tokenize(options({twin.string()}, "half"), bytes); }), HasSubstr("half.part"));
  for (const char* end : {".part", ".mask"}) {
    folder.write(std::string("img") + end, "somebody's");
    EXPECT_THAT(refusal([&] { tokenize(options({path.string()}, "img"), bytes); }),
                HasSubstr(std::string("img") + end + " is there and belongs to no tokenized data set"));
    EXPECT_EQ(base::read_file((folder / "img").string() + end), "somebody's");
    std::filesystem::remove((folder / "img").string() + end);
  }
  folder.write("broken.part", "{");
  folder.write("broken.bin.part", "");
  EXPECT_THAT(refusal([&] { tokenize(options({path.string()}, "broken"), bytes); }), HasSubstr("broken.part"));
}

TEST_F(TokenizeTest, OnlyTheFirstDocumentsAreTakenWhereSoAsked) {
  for (int i = 0; i < 30; ++i) folder.write("in/" + std::to_string(10 + i), "x");
  std::string lines;
  for (int i = 0; i < 3000; ++i) lines += "{\"text\":\"" + std::to_string(i) + "\"}\n";
  TokenizeOptions o = options({folder.write("a.jsonl", lines).string()});
  o.max_documents = 1234;
  tokenize(o, bytes);
  EXPECT_EQ(texts().size(), 1234u);
  EXPECT_EQ(texts().back(), "1233\n");
  EXPECT_EQ(TokenSet::open(folder / "out").about()->source_bytes, 10 + 90 * 2 + 900 * 3 + 234 * 4);
}

TEST_F(TokenizeTest, AFolderOfWhichCompressedFilesWouldBeLeftOutIsRefused) {
  const auto listed = [&] { return refusal([&] { TextFiles::list(std::vector{(folder / "in").string()}); }); };
  folder.write("in/a.jsonl", "{\"text\":\"a\"}\n");
  folder.write("in/a.jsonl.gz", "packed");  // gunzip -k keeps it
  folder.write("in/model.tar.gz", "packed");
  EXPECT_EQ(listed(), "not refused");
  folder.write("in/c.txt.zst", "packed");
  folder.write("in/b/b.jsonl.xz", "packed");
  EXPECT_THAT(listed(),
              HasSubstr("in: the folder holds 2 compressed files, which would be left out, such as b/b.jsonl.xz"));
}

TEST_F(TokenizeTest, ASetHoldsTokens) {
  struct Deaf final : RunTokenizer {
    std::vector<int32_t> encode(std::string_view, const text::EncodeOptions& = {}) const override { return {}; }
    std::vector<int32_t> document_separator() const override { return {}; }
  };
  const auto path = folder.write("lines.txt", "\n\n").string();
  EXPECT_THAT(refusal([&] { tokenize(options({path}), Deaf()); }),
              HasSubstr("lines.txt holds no tokens: runs makes none of its text"));
  EXPECT_FALSE(TokenSet::exists(folder / "out"));
}

TEST_F(TokenizeTest, BadInputIsNamedAndLeavesNothing) {
  const auto refused = [&](const std::string& name, const std::string& text) {
    return refusal([&] { tokenize(options({folder.write(name, text).string()}), bytes); });
  };
  EXPECT_THAT(refused("a.jsonl", "{\"text\":\"a\"}\n{\"text\":7}\n"),
              AllOf(HasSubstr("a.jsonl:2: "), HasSubstr("a number")));
  EXPECT_THAT(refused("b.jsonl", "\n\n{\"text\":\"a\"\n"),
              HasSubstr("b.jsonl:3: this is not JSON (byte 12 of the record)"));
  EXPECT_THAT(refused("c.jsonl", "{\"body\":\"a\"}"),
              AllOf(HasSubstr("c.jsonl:1: has no \"text\"; there is body"), HasSubstr("--data.text_field")));
  EXPECT_THAT(refused("d.jsonl", "[\"text\"]"), HasSubstr("a list and not an object"));
  EXPECT_THAT(refused("e.jsonl", "{\"text\":{\"text\":\"a\"}}"), HasSubstr("an object and not a string"));
  EXPECT_THAT(refused("a.json", "[{\"text\":\"a\"},\n{\"body\":\"b\"}]"),
              AllOf(HasSubstr("a.json:2 (record 1)"), HasSubstr("--data.text_field")));
  folder.write("beside/a.txt", "a");
  folder.write("beside/notes.json", "[{\"body\":\"b\"}]");
  EXPECT_THAT(refusal([&] { tokenize(options({(folder / "beside").string()}), bytes); }),
              AllOf(HasSubstr("notes.json:1 (record 0)"), HasSubstr("move it away, or name the files")));
  folder.write("broken/a.txt", "a");
  folder.write("broken/list.json", "[{\"text\":\"b\"");
  EXPECT_THAT(refusal([&] { tokenize(options({(folder / "broken").string()}), bytes); }), HasSubstr("list.json:1"));
  EXPECT_THAT(refused("b.json", "{\n\"text\":\"a\"}\n"),
              HasSubstr("b.json:1: the JSON object that begins here does not"));
  EXPECT_THAT(refused("c.json", "hello"), HasSubstr("c.json:1: a record is a JSON object"));
  EXPECT_THAT(refused("train.bin", std::string("\x12\x00\x34\x01", 4)),
              HasSubstr("train.bin holds bytes of value zero"));
  EXPECT_THAT(refused("zero.txt", std::string("some\0te\0xt.", 11)),
              AllOf(HasSubstr("a text has none"), Not(HasSubstr("iconv"))));
  EXPECT_THAT(refused("f.jsonl", "{\"text\":\"\"}"), HasSubstr("holds no text"));
  EXPECT_THAT(refused("twice.jsonl", "{\"text\":\"a\",\"text\":\"b\"}"), HasSubstr("has \"text\" twice"));
  EXPECT_THAT(refused("raw.jsonl", "{\"text\":\"\xFF\"}"), HasSubstr("raw.jsonl:1: this is not UTF-8 (byte 10)"));
  EXPECT_THAT(refused("qa.jsonl", R"({"question":"a","answer":"b"})"),
              AllOf(HasSubstr("there is question, answer"), HasSubstr("conversations have messages")));
  EXPECT_THAT(refused("pairs.jsonl", R"({"prompt":"a","chosen":"b","rejected":"c"})"), HasSubstr("finetune_dpo"));
  EXPECT_THAT(refused("comma.json", "[{\"text\":\"a\"},\n]"),
              HasSubstr("comma.json:2: the JSON list ends behind a comma; remove the comma"));
  TokenizeOptions other = options({folder.write("field.jsonl", R"({"a":{"text":"b"}})").string()});
  other.text_field = "a.text";
  EXPECT_THAT(refusal([&] { tokenize(other, bytes); }),
              AllOf(HasSubstr("has no \"a.text\"; there is a: name one"), Not(HasSubstr("--data.text_field"))));
  EXPECT_THAT(refused("g.txt", ""), HasSubstr("the file is empty"));
  EXPECT_THAT(refused("h.parquet", "PAR1 and no end"), AllOf(HasSubstr("h.parquet"), HasSubstr("PAR1")));
  EXPECT_THAT(refusal([&] { tokenize(options({(folder / "none").string()}), bytes); }), HasSubstr("no such file"));
  EXPECT_THAT(refused("a.jsonl.gz", "\x1F\x8B\x08"), HasSubstr("a.jsonl.gz is compressed (gzip)"));
  folder.write("packed/a.txt", "\x1F\x8B\x08");
  EXPECT_THAT(refusal([&] { tokenize(options({(folder / "packed").string()}), bytes); }),
              HasSubstr("packed/a.txt is compressed (gzip)"));
  std::filesystem::create_directory(folder / "in");
  EXPECT_THAT(refusal([&] { tokenize(options({(folder / "in").string()}), bytes); }), HasSubstr("holds no text"));
  // The first bad line counts, whichever thread is first.
  std::string lines;
  for (int i = 0; i < 5000; ++i) lines += i % 1000 == 999 ? "bad\n" : "{\"text\":\"abcdefgh\"}\n";
  for (int i = 0; i < 10; ++i) EXPECT_THAT(refused("i.jsonl", lines), HasSubstr("i.jsonl:1000:"));
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("out")));
}

TEST(OrderedWorkers, ResultsComeInOrderAndNotTooFarAhead) {
  std::atomic<int> taken{0}, consumed{0}, most{0};
  OrderedWorkers<int, int> workers(
      4, [&]() -> std::optional<int> { return taken < 500 ? std::optional(taken++) : std::nullopt; },
      [&](int i) {
        most = std::max<int>(most, taken - consumed);
        std::this_thread::sleep_for(std::chrono::microseconds((i * 7919) % 300));
        return i;
      });
  for (int i = 0; i < 500; ++i, ++consumed) ASSERT_EQ(workers.get(), i);
  EXPECT_EQ(workers.get(), std::nullopt);
  EXPECT_LE(most, 2 * 4 + 2 + 1);
}

TEST(OrderedWorkers, GoesAwayInTheMiddle) {
  for (int i = 0; i < 50; ++i) {
    OrderedWorkers<int, int> workers(3, [] { return std::optional(1); }, [](int) { return 1; });
    if (i % 2 == 0) workers.get();
  }
}

TEST(TextCut, LiesOnlyWhereTheTokenizerAgrees) {
  const RunTokenizer runs;
  EXPECT_EQ(find_cut(runs, "aa bb\ncc", 0)->left_end, 6);
  EXPECT_EQ(find_cut(runs, "aa\n\nbb\ncc", 0)->left_end, 7);  // not among several line ends
  EXPECT_FALSE(find_cut(runs, "aa bb 1", 0));  // a space left out would be a token less
  EXPECT_EQ(find_cut(text::ByteTokenizer(), "aabb", 3)->left_end, 3);
}

}  // namespace
}  // namespace trireme::data
