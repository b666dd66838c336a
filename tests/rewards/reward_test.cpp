#include "trireme/rewards/reward.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace trireme::rewards {
namespace {

const nlohmann::json kRow = {{"answer", "42"}};

double score(const std::string& name, const std::string& completion, RewardSettings settings = {}, int64_t tokens = 0,
             const nlohmann::json& row = kRow) {
  settings.functions = {name};
  const std::vector<Answer> answers = {{.prompt = "q", .completion = completion, .row = &row, .tokens = tokens}};
  return make_rewards(settings).front().reward->score(answers, 1).front().value();
}

std::string failure(const std::string& name, const std::string& completion, RewardSettings settings = {}) {
  try {
    score(name, completion, std::move(settings));
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "none";
}

std::string tagged(const std::string& answer) { return "<reasoning>so</reasoning> <answer>" + answer + "</answer>"; }

TEST(Reward, ExactIgnoresBlanksAroundTheAnswer) {
  EXPECT_EQ(score("exact", " 42\n"), 1);
  EXPECT_EQ(score("exact", "42."), 0);
}

TEST(Reward, NumberIsTheLastOneWithinATolerance) {
  EXPECT_EQ(score("number", "7 and 35 make 42."), 1);
  EXPECT_EQ(score("number", "about -42"), 0);
  EXPECT_EQ(score("number", "41.5", {.tolerance = 0.5}), 1);
  EXPECT_EQ(score("number", "none"), 0);
}

TEST(Reward, AFullStopBeforeANumberIsNoPoint) {
  for (const char* text : {"it is...46", "see No.46", "so.46.", "1. 46", "(a).46", "..46"})
    EXPECT_EQ(score("number", text, {}, 0, {{"answer", "46"}}), 1) << text;
  EXPECT_EQ(score("number", "it is...4.6", {}, 0, {{"answer", "4.6"}}), 1);
  EXPECT_EQ(score("number", "1.4.6", {}, 0, {{"answer", "4.6"}}), 1);
  EXPECT_EQ(score("number", "...1,234", {}, 0, {{"answer", "1234"}}), 1);
  for (const char* text : {".46", "it is .46", "x=.46", "$.46.", "0.46"})
    EXPECT_EQ(score("number", text, {}, 0, {{"answer", "0.46"}}), 1) << text;
  EXPECT_EQ(score("number", "-.46", {}, 0, {{"answer", "-0.46"}}), 1);
  for (const char* text : {"it is 1e5.", "1E5", "1e+5", "100000"})
    EXPECT_EQ(score("number", text, {}, 0, {{"answer", "1e5"}}), 1) << text;
  EXPECT_EQ(score("number", "so -3.2e-4", {}, 0, {{"answer", "-0.00032"}}), 1);
  EXPECT_EQ(score("number", "the5", {}, 0, {{"answer", "5"}}), 1);
}

TEST(Reward, NumbersMayHaveCommasBetweenThousands) {
  const nlohmann::json plain = {{"answer", 1234567}}, written = {{"answer", "1,234,567"}}, small = {{"answer", "234"}};
  for (const auto* row : {&plain, &written}) {
    EXPECT_EQ(score("number", "It is 1,234,567.", {}, 0, *row), 1);
    EXPECT_EQ(score("number", "It is 1234567", {}, 0, *row), 1);
    EXPECT_EQ(score("number", "It is 1,234,568", {}, 0, *row), 0);
  }
  EXPECT_EQ(score("number", "1,234", {}, 0, small), 0);
  EXPECT_EQ(score("number", "1, 234", {}, 0, small), 1);  // two numbers
  EXPECT_EQ(score("number", "12,2345", {}, 0, {{"answer", 2345}}), 1);
  EXPECT_EQ(score("number", "-1,234.5", {}, 0, {{"answer", "-1,234.5"}}), 1);
}

TEST(Reward, FormatIsAnExpressionWithABudget) {
  EXPECT_EQ(score("format", "<b>x</b>", {.pattern = "<b>.+</b>"}), 1);
  EXPECT_EQ(score("format", "x", {.pattern = "<b>.+</b>"}), 0);
  EXPECT_NE(failure("format", std::string(300, 'a') + "!", {.pattern = "(a|a|aa)+$"}), "none");
}

TEST(Reward, AnExpressionThatCannotBeReadIsRefusedByTheNameOfItsSetting) {
  try {
    make_rewards({.functions = {{"format"}}, .pattern = "(a"});
    FAIL() << "it was taken";
  } catch (const UsageError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("reward.pattern: ")) << error.what();
  }
}

TEST(Reward, LengthIsBestAtItsMeasure) {
  EXPECT_EQ(score("length", "", {.length = 10}, 10), 1);
  EXPECT_EQ(score("length", "", {.length = 10}, 5), 0.5);
  EXPECT_EQ(score("length", "", {.length = 10}, 40), -1);
}

// The values of google/tunix's examples for GSM8K.
TEST(Reward, TunixNames) {
  EXPECT_EQ(score("match_format_exactly", tagged("42")), 3);
  EXPECT_EQ(score("match_format_exactly", "<answer>42</answer>"), 0);
  EXPECT_EQ(score("match_format_exactly", "<reasoning></reasoning><answer>42</answer>"), 0);
  EXPECT_EQ(score("match_format_approximately", tagged("42")), 2);
  EXPECT_EQ(score("match_format_approximately", "<answer>42</answer><answer>"), -1);
  EXPECT_EQ(score("check_answer", tagged("42")), 3);
  EXPECT_EQ(score("check_answer", tagged(" 42 ")), 1.5);
  EXPECT_EQ(score("check_answer", tagged("40")), 0.5);
  EXPECT_EQ(score("check_answer", tagged("35")), 0.25);
  EXPECT_EQ(score("check_answer", tagged("1")), -1);
  EXPECT_EQ(score("check_answer", tagged("many")), -0.5);
  EXPECT_EQ(score("check_answer", "42"), 0);
  EXPECT_EQ(score("check_numbers", "<answer>it is 42 or 43"), 1.5);
  EXPECT_EQ(score("check_numbers", "42"), 0);
}

// As with the expression of google/tunix's examples, searched by Python.
TEST(Reward, TunixTagsStandOnLinesOfTheirOwn) {
  const std::string exact = "<reasoning>x</reasoning><answer>42</answer>";
  for (const std::string& text : {"hm " + exact, exact + " so", "hm " + exact + " so", "1. " + exact + "\n"}) {
    EXPECT_EQ(score("match_format_exactly", text), 0) << text;
    EXPECT_EQ(score("check_answer", text), 0) << text;
  }
  for (const std::string& text : {"hm\n \t" + exact, exact + " \r\nso", "\n\n" + exact + "\n\n"}) {
    EXPECT_EQ(score("match_format_exactly", text), 3) << text;
    EXPECT_EQ(score("check_answer", text), 3) << text;
  }
  // The next tag that counts is looked for.
  EXPECT_EQ(score("check_answer", "so <reasoning> is:\n" + exact), 3);
  EXPECT_EQ(score("match_format_exactly", exact + " so</answer>"), 3);
  EXPECT_EQ(score("check_answer", exact + " so</answer>"), -0.5);  // the answer is "42</answer> so"
}

TEST(Reward, AMissingAnswerIsSaid) {
  EXPECT_EQ(failure("exact", "42", {.answer_key = "gold"}),
            "the line of prompt 0 has no key \"gold\"; name another one with reward.answer_key");
}

TEST(Reward, AnAnswerThatIsNoNumberIsSaidWithItsPlace) {
  const nlohmann::json row = {{"answer", "Paris"}};
  const std::vector<Answer> answers = {{.prompt = "q", .completion = "1", .row = &row, .place = "train.jsonl:9"}};
  try {
    make_rewards({.functions = {{"number"}}}).front().reward->score(answers, 1);
    FAIL() << "it was judged";
  } catch (const Failure& failure) {
    EXPECT_STREQ(failure.what(), "train.jsonl:9: \"answer\" is no number; take the reward exact for texts");
  }
}

TEST(Reward, OnlyNumberWantsANumberForItsRightAnswer) {
  const RewardSettings settings;
  EXPECT_FALSE(has_right_answer("number", {{"answer", "Paris"}}, settings));
  EXPECT_TRUE(has_right_answer("number", {{"answer", " 1,234 "}}, settings));
  EXPECT_TRUE(has_right_answer("exact", {{"answer", "Paris"}}, settings));
  EXPECT_FALSE(has_right_answer("exact", {{"gold", "Paris"}}, settings));
  EXPECT_FALSE(has_right_answer("exact", {{"answer", nullptr}}, settings));
  EXPECT_FALSE(has_right_answer("exact", {{"answer", {"Paris", "paris"}}}, settings));
}

}  // namespace
}  // namespace trireme::rewards
