#include "trireme/data/named_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "refusal.h"
#include "temporary_folder.h"
#include "trireme/data/from_settings.h"

namespace trireme::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

DataSettings settings_of(Corpus name, const std::filesystem::path& path) {
  return {.name = name, .train_data_path = path.string()};
}

TEST(NamedSets, AreFoundAsLitGptLeavesThem) {
  const TemporaryFolder folder;
  const auto dolly = folder.write("dolly/dolly_data_cleaned.json", "x");
  const TrainingDataOptions of_dolly = training_data_options(settings_of(Corpus::dolly, folder / "dolly"));
  ASSERT_EQ(of_dolly.sources.size(), 1u);
  EXPECT_EQ(of_dolly.sources[0].path, dolly);
  EXPECT_TRUE(of_dolly.val_data_path.empty());
  EXPECT_EQ(training_data_options(settings_of(Corpus::dolly, dolly)).sources[0].path, dolly);

  const auto published = folder.write("downloads/databricks-dolly-15k.jsonl", "x");
  EXPECT_EQ(training_data_options(settings_of(Corpus::dolly, folder / "downloads")).sources[0].path, published);

  folder.write("longform/train.json", "x");
  const auto validation = folder.write("longform/val.json", "x");
  const TrainingDataOptions of_longform = training_data_options(settings_of(Corpus::longform, folder / "longform"));
  EXPECT_EQ(of_longform.sources[0].path.filename(), "train.json");
  EXPECT_EQ(of_longform.val_data_path, validation);

  for (const char* name : {"flan/cola_train.jsonl", "flan/arc_train.jsonl", "flan/arc_test.jsonl"})
    folder.write(name, "x");
  const TrainingDataOptions of_flan = training_data_options(settings_of(Corpus::flan, folder / "flan"));
  ASSERT_EQ(of_flan.sources.size(), 2u);
  EXPECT_EQ(of_flan.sources[0].path.filename(), "arc_train.jsonl");
}

TEST(NamedSets, AMissingOneIsNamedWithItsPlaceAndItsColumns) {
  const TemporaryFolder folder;
  folder.write("longform/train.json", "x");
  const auto refused = [](const DataSettings& settings) { return refusal([&] { training_data_options(settings); }); };
  EXPECT_EQ(refused({.name = Corpus::alpaca}),
            "data Alpaca reads alpaca_data_cleaned_archive.json, which is not in the folder data/alpaca; nothing is "
            "downloaded, so fetch it first and name where it lies with --data.json_path FILE; its records need "
            "instruction and output, and may have input");
  EXPECT_THAT(
      refused({.name = Corpus::dolly}),
      HasSubstr("dolly_data_cleaned.json (or databricks-dolly-15k.jsonl), which is not in the folder data/dolly; "));
  EXPECT_THAT(refused({.name = Corpus::dolly}), HasSubstr("need instruction and response, and may have context"));
  EXPECT_THAT(refused(settings_of(Corpus::longform, folder / "longform")),
              HasSubstr("reads train.json and val.json, which are not"));
  EXPECT_THAT(refused({.name = Corpus::lima}),
              HasSubstr("data LIMA has no file of a fixed name to look for; nothing is"));
  EXPECT_THAT(refused({.name = Corpus::deita}), HasSubstr("its records need messages"));
  EXPECT_THAT(refused(settings_of(Corpus::alpaca2k, folder / "lost.json")), HasSubstr("lost.json does not exist"));
}

TEST(NamedSets, BringTheirColumnsAndTheirTemplate) {
  const TemporaryFolder folder;
  folder.write("model/tokenizer_config.json", R"({"chat_template": "<|im_start|>"})");
  const auto source = [&](DataSettings settings) { return conversation_source(settings, folder / "model"); };
  const ConversationSource dolly = source({.name = Corpus::dolly});
  EXPECT_EQ(dolly.options.format, ConversationFormat::alpaca);
  EXPECT_STREQ(dolly.options.columns->output, "response");
  EXPECT_STREQ(dolly.family({}).name, "alpaca");
  EXPECT_STREQ(source({.name = Corpus::dolly, .chat_template = "llama3"}).family({}).name, "llama3");
  EXPECT_STREQ(source({.name = Corpus::json}).family({}).name, "chatml");
  EXPECT_STREQ(source({.name = Corpus::longform}).family({}).name, "longform");
  EXPECT_EQ(source({.name = Corpus::lima}).options.format, ConversationFormat::sharegpt);
  EXPECT_NE(dolly.fingerprint(dolly.family({})), source({.name = Corpus::alpaca}).fingerprint(dolly.family({})));
}

// LitGPT's JSON: without this, a folder's val.json would be trained on.
TEST(NamedSets, JsonTakesAFoldersTwoSplits) {
  const TemporaryFolder folder;
  folder.write("chat/train.json", "x");
  EXPECT_EQ(training_data_options(settings_of(Corpus::json, folder / "chat")).sources[0].path, folder / "chat");
  const auto validation = folder.write("chat/val.jsonl", "x");
  const TrainingDataOptions splits = training_data_options(settings_of(Corpus::json, folder / "chat"));
  ASSERT_EQ(splits.sources.size(), 1u);
  EXPECT_EQ(splits.sources[0].path, folder / "chat/train.json");
  EXPECT_EQ(splits.val_data_path, validation);
  DataSettings other = settings_of(Corpus::json, folder / "chat");
  other.val_data_path = "mine.json";
  EXPECT_EQ(training_data_options(other).val_data_path, "mine.json");
  folder.write("test/train.jsonl", "x");
  folder.write("test/test.jsonl", "x");
  const auto refused = [&] { training_data_options(settings_of(Corpus::json, folder / "test")); };
  EXPECT_THAT(refused, testing::ThrowsMessage<UsageError>(testing::HasSubstr(
                           "test holds train.jsonl and test.jsonl, and all files of a folder are learned")));
  const auto third = folder.write("test/validation.ndjson", "x");
  EXPECT_EQ(training_data_options(settings_of(Corpus::json, folder / "test")).val_data_path, third);
}

TEST(Splits, OfAFolderThatIsLearnedWholeAreTold) {
  const TemporaryFolder folder;
  folder.write("train.jsonl", "x");
  EXPECT_EQ(splits_learned_alike(folder.path()), "");
  folder.write("test.txt", "x");
  EXPECT_THAT(splits_learned_alike(folder.path()),
              testing::AllOf(HasSubstr("holds train.jsonl and test.txt, and all files of a folder are learned alike"),
                             HasSubstr("--data.val_data_path " + (folder / "test.txt").string())));
  EXPECT_EQ(splits_learned_alike(folder / "train.jsonl"), "") << "a file is no folder";
}

}  // namespace
}  // namespace trireme::data
