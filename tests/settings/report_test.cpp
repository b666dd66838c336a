#include "trireme/settings/parse.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "settings_test.h"
#include "trireme/config/choices.h"
#include "trireme/config/declaration.h"
#include "trireme/config/value.h"
#include "trireme/settings/derived.h"

namespace trireme {
namespace {

using testing::HasSubstr;

TEST(Report, HelpNamesEverySettingWithTypeDefaultAndMeaning) {
  const std::string help = help_text();
  for (const std::string& key : all_keys()) EXPECT_THAT(help, HasSubstr("  --" + key + "  "));
  EXPECT_THAT(
      help,
      HasSubstr(
          "--train.micro_batch_size  whole number of sequences, at least 1 and at most 1,000,000,000  [4 sequences]\n"
          "      sequences a rank computes at once\n"));
  EXPECT_THAT(help, HasSubstr("also ddp, zero0, multi_gpu for"));
  EXPECT_THAT(help, HasSubstr("--recompute.values  list of qkv, attended, mid or hidden  [[hidden]]\n"));
  EXPECT_THAT(help, HasSubstr("--pipeline.split  list of whole numbers of units, at least 1, or auto  "
                              "[auto: balanced by cost]\n"));
}

TEST(Report, HelpCanBeNarrowedToGroups) {
  const std::string help = help_text({"run", "generate"});
  EXPECT_THAT(help, HasSubstr("--generate.top_k"));
  EXPECT_THAT(help, HasSubstr("--out_dir"));
  EXPECT_THAT(help, testing::Not(HasSubstr("--train.max_steps ")));
  EXPECT_THROW(help_text({"nothing"}), UsageError);
}

TEST(Report, HelpShowsTheCommandsOwnDefaults) {
  const std::vector<std::string> words = {"out_dir", "data", "lora.r", "train.global_batch_size"};
  const std::string help = help_text(words, {.values = {{"out_dir", "out/finetune/lora"},
                                                        {"data", "JSON"},
                                                        {"lora.r", "8"},
                                                        {"train.global_batch_size", "16"}},
                                             .shown_defaults = {{"data.tokenizer", "it must be given"}}});
  EXPECT_THAT(help, HasSubstr("--out_dir  text  [out/finetune/lora]\n"));
  EXPECT_THAT(help, testing::ContainsRegex("--data  .*  .JSON.\n"));
  EXPECT_THAT(help, testing::ContainsRegex("--lora.r  .*  .8.\n"));
  EXPECT_THAT(help, testing::ContainsRegex("--train.global_batch_size  .*  .16 sequences.\n"));
  EXPECT_THAT(help, testing::ContainsRegex("--data.tokenizer  .*  .null: it must be given.\n"));
  EXPECT_THAT(help_text(words), HasSubstr("--out_dir  text  [out/pretrain]\n"));
}

TEST(Report, TheReferencePageHasARowForEverySetting) {
  const std::string page = settings_reference_markdown();
  for (const std::string& key : all_keys()) EXPECT_THAT(page, HasSubstr("| `" + key + "` | "));
}

TEST(Report, ExplainSaysWhereEachValueCameFrom) {
  const YamlFile file("train:\n  max_steps: 5\n");
  const std::string text = explain(parse_line({"--config", file.path(), "--devices", "2"}));
  EXPECT_THAT(text, testing::ContainsRegex("train.max_steps +5 +" + file.path() + ":2\n"));
  EXPECT_THAT(text, testing::ContainsRegex("devices +2 +command line: --devices 2\n"));
  EXPECT_THAT(text, testing::ContainsRegex("seed +42 +default\n"));
}

TEST(Report, JsonHasTypedValues) {
  Settings settings;
  settings.train.max_time = std::chrono::milliseconds(1500);
  const auto json = nlohmann::json::parse(to_json(settings));
  EXPECT_EQ(json.size(), all_keys().size());
  EXPECT_EQ(json["train.micro_batch_size"], 4);
  EXPECT_EQ(json["train.max_time"], 1.5);
  EXPECT_TRUE(json["optimizer.betas"].is_null());
  settings.optimizer.betas = {0.9, 0.98};
  EXPECT_EQ(nlohmann::json::parse(to_json(settings))["optimizer.betas"][1], 0.98);
  EXPECT_EQ(json["strategy"], "full_shard");
  EXPECT_TRUE(json["devices"].is_null());
  EXPECT_EQ(json["launch.pin"], true);
  EXPECT_EQ(json["recompute.values"], (std::vector<std::string>{"hidden"}));
  EXPECT_TRUE(json["pipeline.split"].is_null());
}

TEST(Report, AutoPrecisionFollowsTheProcessor) {
  EXPECT_EQ(number_format(NumberFormat::automatic, true), NumberFormat::bf16_mixed);
  EXPECT_EQ(number_format(NumberFormat::automatic, false), NumberFormat::fp32_true);
  EXPECT_EQ(number_format(NumberFormat::fp64_true, true), NumberFormat::fp64_true);
}

TEST(Report, TheDefaultsReadBackAsThemselves) {
  const YamlFile file(to_yaml(Settings{}));
  EXPECT_EQ(parse_line({"--config", file.path()}).settings, Settings{});
}

// Random values for every setting: what to_yaml writes, --config reads as equal settings.
std::string random_text() {
  return *rc::gen::container<std::string>(
      rc::gen::oneOf(rc::gen::inRange<char>(1, 127), rc::gen::elementOf(std::string(" :#\"'\n~-"))));
}

double random_within(const Rules& rules) {
  const double low = rules.at_least.value_or(rules.above ? *rules.above + 1e-9 : -1e6);
  const double high = rules.at_most.value_or(rules.below ? *rules.below - 1e-9 : low + 1e9);
  const auto share = *rc::gen::inRange<int64_t>(0, 1'000'001);
  return low + (high - low) * static_cast<double>(share) * 1e-6;
}

struct Randomise {
  const Rules& rules;
  void operator()(bool* value) const { *value = *rc::gen::arbitrary<bool>(); }
  void operator()(int64_t* value) const { *value = static_cast<int64_t>(std::ceil(random_within(rules))); }
  void operator()(double* value) const { *value = random_within(rules); }
  void operator()(std::string* value) const {
    *value = rules.classes.empty() ? random_text() : *rc::gen::elementOf(rules.classes);
    if (value->empty() && !rules.may_be_empty) *value = "x";
  }
  void operator()(std::chrono::milliseconds* value) const {
    *value = std::chrono::milliseconds(*rc::gen::inRange<int64_t>(1, 100'000'000));
  }
  void operator()(std::array<double, 2>* value) const { *value = {random_within(rules), random_within(rules)}; }
  void operator()(ChoiceValue value) const {
    if (value.is_optional()) {
      value.reset();
      if (!*rc::gen::arbitrary<bool>()) return;
    }
    const auto row = *rc::gen::inRange<size_t>(0, value.words().size());
    if (value.words()[row].available) value.set(row);
  }
  void operator()(ChoiceOrText value) const {
    const auto row = *rc::gen::inRange<size_t>(0, value.choice.words().size());
    value.choice.set(row);
    *value.text = "";
    if (value.choice.words()[row].name == value.free)
      *value.text = *rc::gen::element(random_text() + "/x", std::string("true"));
  }
  void operator()(std::vector<std::string>* value) const {
    for (auto left = *rc::gen::inRange(1, 5); left > 0; --left) {
      value->emplace_back();
      (*this)(&value->back());
    }
  }
  void operator()(std::vector<int64_t>* value) const {
    for (auto left = *rc::gen::inRange(1, 5); left > 0; --left) {
      value->emplace_back();
      (*this)(&value->back());
    }
  }
  template <typename T>
  void operator()(std::optional<T>* value) const {
    value->reset();
    if (!*rc::gen::arbitrary<bool>()) return;
    value->emplace();
    (*this)(&**value);
  }
};

TEST(Report, APathThatIsNoUtf8ReadsBack) {
  Settings settings;
  settings.data.train_data_path = "caf\xE9.txt";
  settings.generate.stop = {"caf\xE9", "END"};
  const YamlFile file(to_yaml(settings));
  EXPECT_EQ(parse_line({"--config", file.path()}).settings, settings);
}

RC_GTEST_PROP(Report, WhatToYamlWritesReadsBack, ()) {
  Settings settings;
  declare(settings).for_each([](const Section&, const Setting& setting) {
    if (*rc::gen::inRange(0, 3) != 0) std::visit(Randomise{setting.rules}, setting.value);
  });
  const std::string yaml = to_yaml(settings);
  RC_LOG() << yaml;
  const YamlFile file(yaml);
  const std::string refused = refusal({"--config", file.path()});
  RC_LOG() << refused;
  RC_ASSERT(refused.empty());
  RC_ASSERT(parse_line({"--config", file.path()}).settings == settings);
}

}  // namespace
}  // namespace trireme
