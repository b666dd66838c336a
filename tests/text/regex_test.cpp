#include "trireme/text/regex.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "tests/data/refusal.h"
#include "trireme/text/pre_tokenizer.h"
#include "trireme/text/unicode_classes.h"

namespace trireme::text {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::string> matches(const std::string& pattern, const std::string& text) {
  std::vector<std::string> found;
  Regex(pattern).for_each_match(text,
                                [&](const Regex::Match& m) { found.push_back(text.substr(m.begin, m.end - m.begin)); });
  return found;
}

std::string match_refusal(const std::string& pattern, const std::string& text = "") {
  return data::refusal([&] { Regex(pattern).for_each_match(text, [](const Regex::Match&) {}); });
}

TEST(RegexTest, Gpt2sExpressionCutsWordsNumbersSpacesAndContractions) {
  EXPECT_THAT(matches(std::string(kGpt2Pattern), "it's 12 o'clock,  now\n"),
              ElementsAre("it", "'s", " 12", " o", "'", "clock", ",", " ", " now", "\n"));
  EXPECT_THAT(matches(std::string(kGpt2Pattern), "a\u0301\u4f60\u597d"), ElementsAre("a", "\u0301", "\u4f60\u597d"));
}

TEST(RegexTest, AlternativesRepetitionsAndLookAroundFollowPerl) {
  EXPECT_THAT(matches("a|ab", "abab"), ElementsAre("a", "a"));
  EXPECT_THAT(matches("a*?b", "aab"), ElementsAre("aab"));
  EXPECT_THAT(matches("a++b|a", "aab aa"), ElementsAre("aab", "a", "a"));
  EXPECT_THAT(matches("a++a", "aaa"), ElementsAre());
  EXPECT_THAT(matches("(?>a+)a|b", "aab"), ElementsAre("b"));
  EXPECT_THAT(matches("(?:ab){2,3}", "abababab"), ElementsAre("ababab"));
  EXPECT_THAT(matches("(?:a|b)*c", "abbac!c"), ElementsAre("abbac", "c"));
  EXPECT_THAT(matches("(?:a*)*b", "aaab"), ElementsAre("aaab"));
  EXPECT_THAT(matches("(?<=x)y|(?<!x)z", "xy y xz z"), ElementsAre("y", "z"));
  EXPECT_THAT(matches(R"(\s+(?!\S)|\s)", "a   b  "), ElementsAre("  ", " ", "  "));
  EXPECT_THAT(matches(R"(^\w+|\d+$)", "ab 12\nc 3"), ElementsAre("ab", "12", "c", "3"));
  EXPECT_THAT(matches(R"(\bfoo\b)", "foo food foo"), ElementsAre("foo", "foo"));
  EXPECT_THAT(matches("x*", "axb"), ElementsAre("", "x", "", ""));
  EXPECT_THAT(matches(R"(\012|\0b|\07)", std::string("\n\0b\a", 4)), ElementsAre("\n", std::string("\0b", 2), "\a"));
  EXPECT_THAT(matches("^", "a\n"), ElementsAre("")) << "not behind the last newline";
  // Intervals are Oniguruma's, as in PyPI's tokenizers, where they are not Python's.
  EXPECT_THAT(matches(R"(\d{1,3}+)", "1234"), ElementsAre("1234"));
  EXPECT_THAT(matches(R"(\d{2}?)", "12a"), ElementsAre("12", "", ""));
  EXPECT_THAT(matches(R"(\d{1,2}?)", "12"), ElementsAre("1", "2"));
  EXPECT_THAT(matches("x{2}?y", "zyzxxy"), ElementsAre("y", "xxy"));
  EXPECT_THAT(matches("x{2,2}?y", "zyzxxy"), ElementsAre("xxy"));
  EXPECT_EQ(Regex(R"(\d{1,3}+)", RegexSyntax::python).all_groups("1234").size(), 2u);
}

std::vector<std::vector<std::string>> groups(const std::string& pattern, const std::string& text) {
  return Regex(pattern, RegexSyntax::python).all_groups(text);
}

// What re.finditer gives: the match, then match.groups("").
TEST(RegexTest, GroupsOfPythonsExpressionsAreThoseOfRe) {
  using Rows = std::vector<std::vector<std::string>>;
  EXPECT_EQ(groups(R"(#### (\-?[0-9\.\,]+))", "so\n#### 1,234.5\n#### -7"),
            (Rows{{"#### 1,234.5", "1,234.5"}, {"#### -7", "-7"}}));
  EXPECT_EQ(groups(R"((-?[$0-9.,]{2,})|(-?[0-9]+))", "a $18.50 b 7"), (Rows{{"$18.50", "$18.50", ""}, {"7", "", "7"}}));
  EXPECT_EQ(groups("x*", "axb"), (Rows{{""}, {"x"}, {""}, {""}}));
  EXPECT_EQ(groups("(a|b)*c", "abc c"), (Rows{{"abc", "b"}, {"c", ""}}));
  EXPECT_EQ(groups("(?:(a)|b)+", "ab"), (Rows{{"ab", "a"}}));
  EXPECT_EQ(groups("(?P<n>a+)(?=(b))", "aab"), (Rows{{"aa", "aa", "b"}}));
  EXPECT_EQ(groups("(?:(?=(a))ab|ac)", "ac"), (Rows{{"ac", ""}}));  // the way through the first group failed
  EXPECT_EQ(groups("((a)(b)?)+", "aba"), (Rows{{"aba", "a", "a", "b"}}));
}

TEST(RegexTest, EndsFlagsAndClassesOfPythonsExpressionsAreThoseOfRe) {
  using Rows = std::vector<std::vector<std::string>>;
  EXPECT_EQ(groups(R"(^\w+|\d$)", "ab 1\ncd 2\n"), (Rows{{"ab"}, {"2"}}));
  EXPECT_EQ(groups("(?m)^", "a\n").size(), 2u);
  EXPECT_EQ(groups("|a", "a"), (Rows{{""}, {"a"}, {""}}));  // behind an empty match one that is not
  EXPECT_EQ(groups("[ab]??", "ab"), (Rows{{""}, {"a"}, {""}, {"b"}, {""}}));
  EXPECT_EQ(groups("a{,}", "aa").front(), (std::vector<std::string>{"aa"}));
  EXPECT_EQ(groups(R"((?m)^\w+|\d$)", "ab 1\ncd 2\n"), (Rows{{"ab"}, {"1"}, {"cd"}, {"2"}}));
  EXPECT_EQ(groups(R"(\d\Z)", "1\n"), Rows{});
  EXPECT_EQ(groups("(?s).*#### ", "a\nb #### c"), (Rows{{"a\nb #### "}}));
  EXPECT_EQ(groups(".*#### ", "a\nb #### c"), (Rows{{"b #### "}}));
  EXPECT_EQ(groups("(?is)A.b", "a\nB"), (Rows{{"a\nB"}}));
  EXPECT_EQ(groups("a(?s:.)b.", "a\nb\na\nbc"), (Rows{{"a\nbc"}}));
  EXPECT_EQ(groups("[[&&]+", "a[&"), (Rows{{"[&"}}));
  EXPECT_EQ(groups(R"(\s+|[\s]a)", "\x1C \x1F"), (Rows{{"\x1C \x1F"}}));
  EXPECT_EQ(groups(R"(\w+)", "x\u00B2\u00BD_a\u0301b\u203Fc"), (Rows{{"x\u00B2\u00BD_a"}, {"b"}, {"c"}}));
  EXPECT_EQ(groups(R"(\bx\b)", "x\u00B2 x\u0301 x"), (Rows{{"x"}, {"x"}}));
  EXPECT_THAT(data::refusal([] { Regex("(?x)a", RegexSyntax::python); }), HasSubstr("an unknown kind of group"));
  EXPECT_EQ(groups("(?s).*#### ", std::string(5000, 'a')), Rows{}) << "a long answer is searched to its end";
  EXPECT_THAT(data::refusal([] { groups("(a+)+b", std::string(60, 'a')); }), HasSubstr("the task's file"));
}

TEST(RegexTest, ClassesKnowCategoriesRangesNestingAndIntersection) {
  EXPECT_THAT(matches(R"([\p{Lu}\p{Nd}]+)", "aBC1\u0663d"), ElementsAre("BC1\u0663"));
  EXPECT_THAT(matches(R"([^\s\p{L}]+)", "ab !? c1"), ElementsAre("!?", "1"));
  EXPECT_THAT(matches(R"([a-z&&[^aeiou]]+)", "hello"), ElementsAre("h", "ll"));
  EXPECT_THAT(matches(R"([[a-c]x-]+)", "abc-xy"), ElementsAre("abc-x"));
  EXPECT_THAT(matches(R"([]a]+)", "]a[b"), ElementsAre("]a"));
  EXPECT_THAT(matches(R"(\P{L}+)", "a1 b"), ElementsAre("1 "));
  EXPECT_THAT(matches(R"([\x{4e00}-\u9fff]+)", "a\u4f60\u597d"), ElementsAre("\u4f60\u597d"));
}

TEST(RegexTest, CaseIsIgnoredByFoldingOneCharacterToOne) {
  EXPECT_THAT(matches("(?i:'s|'ll)", "'S '\u017f 'Ll"), ElementsAre("'S", "'\u017f", "'Ll"));
  EXPECT_THAT(matches("(?i:k)k", "Kk \u212Ak kK"), ElementsAre("Kk", "\u212Ak"));
}

TEST(RegexTest, BytesThatAreNoTextAreCharactersOfTheirOwn) {
  EXPECT_THAT(matches(R"([^\s\p{L}]+)", "a\xFF\xC3z"), ElementsAre("\xFF\xC3"));
  EXPECT_THAT(matches(R"(\S+?z)", "\xF0\x9F\x92z"), ElementsAre("\xF0\x9F\x92z"));
}

TEST(RegexTest, WhatIsNotUnderstoodIsRefusedByName) {
  EXPECT_THAT(match_refusal("(a"), HasSubstr("a ( without its )"));
  EXPECT_THAT(match_refusal("a)"), HasSubstr("a ) without its ("));
  EXPECT_THAT(match_refusal("[a"), HasSubstr("a [ without its ]"));
  EXPECT_THAT(match_refusal(R"((a)\1)"), HasSubstr(R"(the escape \1)"));
  EXPECT_THAT(match_refusal(R"(\p{Klingon})"), HasSubstr(R"(the class \p{Klingon})"));
  EXPECT_THAT(match_refusal("*a"), HasSubstr("a repetition of nothing at byte 0"));
  EXPECT_THAT(match_refusal("a{3,2}"), HasSubstr("below its least"));
  EXPECT_THAT(match_refusal("a{2000}"), HasSubstr("more than 1000"));
  EXPECT_THAT(match_refusal("(?<=a+)b"), HasSubstr("look-behind of varying length"));
  EXPECT_THAT(match_refusal("(?x)a"), HasSubstr("an unknown kind of group"));
  EXPECT_THAT(match_refusal("a\\"), HasSubstr("an end where a character should be"));
  EXPECT_THAT(match_refusal(std::string(5000, 'a')), HasSubstr("longer than 4096 bytes"));
  EXPECT_THAT(match_refusal(std::string(100, '(')), HasSubstr("nested more than 50 deep"));
  EXPECT_THAT(match_refusal("\xFF"), HasSubstr("not UTF-8"));
}

TEST(RegexTest, ASearchThatRunsAwayIsGivenUp) {
  EXPECT_THAT(match_refusal("(?:a+)+b", std::string(40, 'a')), HasSubstr("more than linear time"));
  EXPECT_THAT(match_refusal("(?:a|bb)*c", std::string(100'000, 'a')), HasSubstr("nests too deep"));
  EXPECT_THAT(match_refusal("(?:a|b)*c", std::string(20'000, 'a')), HasSubstr("more than linear time"));
  EXPECT_EQ(match_refusal(std::string(kGpt2Pattern), std::string(1'000'000, ' ') + "x"), "not refused");
}

// Rounds of one length do not nest, so a long number is no deep one.
TEST(RegexTest, RepetitionsOfOneLengthAreLoops) {
  const std::string thousands = R"(\d{1,3}(?=(?:\d{3})*\b)|\s+|\w+|.)";
  EXPECT_THAT(matches(thousands, "1234567 12"), ElementsAre("1", "234", "567", " ", "12"));
  EXPECT_EQ(matches(thousands, std::string(9000, '7')).size(), 3000u);
  const std::vector<std::string> long_one = matches(thousands, std::string(9001, '7'));
  ASSERT_EQ(long_one.size(), 3001u);
  EXPECT_EQ(long_one[0], "7");
  EXPECT_THAT(matches("(?:ab|cd)*abe", "cdababe ab"), ElementsAre("cdababe"));
  EXPECT_THAT(matches("(?:ab)++ab|ab", "abab ab"), ElementsAre("ab", "ab", "ab"));
  EXPECT_THAT(matches("(?:a.)*?ac", "abadac"), ElementsAre("abadac"));
  EXPECT_THAT(matches("(?:a.){0,1}?ac", "abadac"), ElementsAre("adac"));
  EXPECT_THAT(matches("(?:\u00e9\u4f60)*\u00e9", "\u00e9\u4f60\u00e9\u4f60x"), ElementsAre("\u00e9\u4f60\u00e9"));
  EXPECT_THAT(matches("(?:(?!ab)[a-c]{2})+", "cbbaabcb"), ElementsAre("cbba", "bc"));
  EXPECT_EQ(groups("(?:(a)b)+", "abab"), (std::vector<std::vector<std::string>>{{"abab", "a"}}));
  EXPECT_EQ(matches("(?:ab)+", std::string(20'000, 'a') + "b").size(), 1u);
}

TEST(RegexTest, HostileExpressionsEndInOneErrorThatNamesThem) {
  const std::string text = std::string(5000, 'a') + "!";
  for (const char* hostile : {"^(a+)+$", "(a|aa)+$", "(.*)*b", "(a?){50}a{50}b", "(?=(a+)+b)a", "((a*)*)*b",
                              "(\\w+\\s?)+$", "(?:(?:a{1,50}){1,50}){1,50}b", "(a*?)*?b", "(?:a++|a)*(?:a|b)+c$"}) {
    const auto begin = std::chrono::steady_clock::now();
    const std::string message = match_refusal(hostile, text);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    EXPECT_THAT(message,
                AllOf(StartsWith(fmt::format("the regular expression {} was", hostile)), HasSubstr("plainer")));
    EXPECT_LT(seconds.count(), 10) << hostile << " took long: " << message;
  }
  // Also where each piece is short: twenty characters are two million ways.
  EXPECT_THAT(match_refusal("^(a|a|aa)+$", std::string(20, 'a') + "!"), HasSubstr("more than linear time"));
}

TEST(UnicodeClassesTest, CategoriesAreThoseOfUnicode16) {
  EXPECT_EQ(category_of('a'), Category::Ll);
  EXPECT_EQ(category_of(0x1C89), Category::Lu);  // new in 16.0
  EXPECT_EQ(category_of(0x10FFFF), Category::Cn);
  EXPECT_EQ(category_of(0xD800), Category::Cs);
  EXPECT_EQ(category_of(kIllFormed), Category::Cn);
  int letters = 0, numbers = 0, marks = 0;
  for (char32_t c = 0; c < kIllFormed; ++c) {
    letters += is_in(c, kLetters);
    numbers += is_in(c, kNumbers);
    marks += is_in(c, kMarks);
  }
  EXPECT_EQ(letters, 141028);
  EXPECT_EQ(numbers, 1911);
  EXPECT_EQ(marks, 2501);
}

}  // namespace
}  // namespace trireme::text
