// Declarations of tasks whose answers are written, and how answers are judged. lm-evaluation-harness itself judges
// whole tasks in tasks_judge.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/data/refusal.h"
#include "trireme/train/eval_tasks.h"
#include "trireme/train/evaluate.h"
#include "trireme/train/task_file.h"

namespace trireme::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kShortest = "doc_to_text: question\ndoc_to_target: answer\n";

WrittenTask task_of(const std::string& more) { return parse_task(kShortest + more, "my.yaml"); }
std::string task_refusal(const std::string& more) {
  return data::refusal([&] { task_of(more); });
}
std::string answer_of(const std::string& filters, const std::string& text) {
  return filtered(task_of("filter_list:\n- name: f\n  filter:\n" + filters).filters.front(), text);
}
bool is_match(const std::string& options, const std::string& answer, const std::vector<std::string>& targets) {
  return matches_exactly(task_of("metric_list:\n- {metric: exact_match, " + options + "}\n").match, answer, targets);
}

TEST(WrittenTask, DefaultsAreThoseOfTheHarness) {
  const WrittenTask task = task_of("");
  EXPECT_THAT(task.until, ElementsAre("\n\n"));
  EXPECT_EQ(task.max_new_tokens, 256);
  EXPECT_EQ(task.temperature, 0);
  EXPECT_EQ(task.target_delimiter, " ");
  ASSERT_EQ(task.filters.size(), 1U);
  EXPECT_EQ(filtered(task.filters.front(), " as it is\n"), " as it is\n");
  EXPECT_TRUE(matches_exactly(task.match, "A.", {"b", "A."}));
  EXPECT_FALSE(matches_exactly(task.match, "a.", {"b", "A."}));
}

// Ranks compare them: each may have read another file.
TEST(WrittenTask, RulesAreEqualIfTheyMeanTheSame) {
  const std::string filter = "filter_list:\n- name: f\n  filter:\n  - {function: regex, regex_pattern: 'a(.)'";
  const std::string rules = rules_of(task_of(filter + "}\n"));
  EXPECT_EQ(rules, rules_of(task_of("# a remark\ntask: another name\ndataset_path: json\ndataset_kwargs: {data_files: "
                                    "elsewhere.jsonl}\n" +
                                    filter + ", group_select: 0}\n  - function: take_first\n")));
  for (const std::string& other : std::vector<std::string>{
           filter + ", group_select: -1}\n", filter + ", fallback: none}\n",
           filter + "}\n  - function: remove_whitespace\n",
           "filter_list:\n- name: f\n  filter:\n  - {function: regex, regex_pattern: 'b(.)'}\n",
           "filter_list:\n- name: g\n  filter:\n  - {function: regex, regex_pattern: 'a(.)'}\n",
           filter + "}\ngeneration_kwargs: {until: [x]}\n", filter + "}\ngeneration_kwargs: {max_gen_toks: 8}\n",
           filter + "}\ngeneration_kwargs: {temperature: 0.5}\n",
           filter + "}\nmetric_list:\n- {metric: exact_match, ignore_case: true}\n",
           filter + "}\nmetric_list:\n- {metric: exact_match, ignore_punctuation: true}\n",
           filter + "}\nmetric_list:\n- {metric: exact_match, ignore_numbers: true}\n",
           filter + "}\nmetric_list:\n- {metric: exact_match, regexes_to_ignore: [x]}\n"})
    EXPECT_NE(rules_of(task_of(other)), rules) << other;
}

TEST(WrittenTask, AKeyTwiceIsRefusedAndALineBreakStopsAnAnswer) {
  EXPECT_THROW(task_of("target_delimiter: a\ntarget_delimiter: b\n"), UsageError);
  EXPECT_EQ(task_of("generation_kwargs:\n  until:\n  - '\n\n    '\n").until, std::vector<std::string>{"\n"});
}

TEST(WrittenTask, DrawsOnlyIfTheFileSaysSo) {
  EXPECT_EQ(task_of("generation_kwargs: {temperature: 0.5}").temperature, 0.5);
  EXPECT_EQ(task_of("generation_kwargs: {do_sample: true, temperature: 0.5}").temperature, 0.5);
  EXPECT_EQ(task_of("generation_kwargs: {do_sample: false, temperature: 0.5}").temperature, 0);
  EXPECT_THAT(task_of("fewshot_delimiter: '##'\ngeneration_kwargs: {max_gen_toks: 8}").until, ElementsAre("##"));
  EXPECT_THAT(task_of("generation_kwargs: {until: [a, \"b\\n\"]}").until, ElementsAre("a", "b\n"));
  EXPECT_THAT(task_of("generation_kwargs: {until: stop}").until, ElementsAre("stop"));
  EXPECT_THAT(task_refusal("generation_kwargs: {do_sample: true}"), HasSubstr("do_sample draws tokens"));
  EXPECT_THAT(task_refusal("generation_kwargs: {max_gen_toks: 0}"),
              HasSubstr("generation_kwargs.max_gen_toks is below"));
}

TEST(WrittenTask, PromptsAreTheTemplatesWithTheRowsValues) {
  const nlohmann::json row = {{"question", "one?"}, {"n", 3}, {"x", 0.5}, {"sure", true}, {"all", {"a", 2}}};
  EXPECT_EQ(RowTemplate("question").of(row), "one?");
  EXPECT_EQ(RowTemplate("Q: {{question}} {{ n }}{{x}} {{sure}} {n} }}\n").of(row), "Q: one? 30.5 True {n} }}\n");
  EXPECT_EQ(RowTemplate("").of(row), "");
  EXPECT_THAT(RowTemplate("all").all_of(row), ElementsAre("a", "2"));
  EXPECT_THAT(RowTemplate("{{n}}").all_of(row), ElementsAre("3"));
  EXPECT_THAT(data::refusal([&] { RowTemplate("{{answer}}").of(row); }), HasSubstr(R"(there is no "answer")"));
  EXPECT_THAT(data::refusal([&] { RowTemplate("{{all}}").of(row); }), HasSubstr(R"("all" is no text or number)"));
  EXPECT_THAT(data::refusal([] { RowTemplate("{{answer.split('#')[-1]}}"); }),
              HasSubstr("the expression {{answer.split('#')[-1]}}, and only {{key}} is built"));
  EXPECT_THAT(data::refusal([] { RowTemplate("{% if x %}"); }), HasSubstr("{%"));
  EXPECT_THAT(data::refusal([] { RowTemplate("a {{b"); }), HasSubstr("has {{ without its }}"));
}

// The harness makes a list of such a target, of which any entry is right.
TEST(WrittenTask, ATargetWrittenAsAListOfPythonIsRefused) {
  for (const char* list : {"['a','b']", "[\"it's\", 'b\\'s' ,]", "[1, -2.5e3]", "[]", "[ True, None ]"}) {
    const nlohmann::json row = {{"a", list}};
    EXPECT_THAT(data::refusal([&] { RowTemplate("{{a}}").all_of(row); }), HasSubstr("doc_to_target: KEY")) << list;
    EXPECT_THAT(RowTemplate("a").all_of(row), testing::ElementsAre(list));  // a key's value stays a text there
  }
  for (const char* text : {"[INST]", "[a, b]", "['a'", "[5 apples]", "['a' or 'b']", "x"}) {
    const nlohmann::json row = {{"a", text}};
    EXPECT_THAT(RowTemplate("{{a}}").all_of(row), testing::ElementsAre(text));
  }
}

TEST(WrittenTask, FiltersTakeOutWhatTheHarnessTakesOut) {
  const std::string number = R"yaml(  - {function: regex, regex_pattern: "#### (\\-?[0-9\\.\\,]+)"})yaml"
                             "\n";
  EXPECT_EQ(answer_of(number, "7 so #### 1,234 or #### 5"), "1,234");
  EXPECT_EQ(answer_of(number, "7"), "[invalid]");
  const std::string last =
      R"yaml(  - {function: regex, group_select: -1, regex_pattern: "(-?[$0-9.,]{2,})|(-?[0-9]+)"})yaml"
      "\n";
  EXPECT_EQ(answer_of(last, "it has 12 or $3.50, or 7"), "7");
  EXPECT_EQ(answer_of(last, "it has 7, or 12.\n"), "12.");
  EXPECT_EQ(answer_of("  - {function: regex, regex_pattern: \"b(x?)\", fallback: none}\n", "ab"), "");
  EXPECT_EQ(answer_of("  - {function: regex, regex_pattern: \"(x?)b(y?)\", fallback: none}\n", "ab"), "none");
  EXPECT_EQ(answer_of("  - {function: regex, regex_pattern: \"a.\", group_select: 2, fallback: none}\n", "ab ac"),
            "none");
  EXPECT_EQ(answer_of("  - {function: regex, regex_pattern: \"a.*\"}\n  - function: take_first\n", "b  a \nc"), "a");
  EXPECT_EQ(answer_of("  - function: remove_whitespace\n", "\n a b\t"), "a b");
  EXPECT_EQ(answer_of("  - function: remove_whitespace\n", "\x1F a b\t\x1C"), "a b");
  EXPECT_EQ(answer_of("  - function: remove_whitespace\n", " \n"), "");
}

TEST(WrittenTask, ExactMatchIgnoresWhatTheFileSays) {
  EXPECT_TRUE(is_match("ignore_case: true", "Äpfel", {"äPFEL"}));
  EXPECT_FALSE(is_match("ignore_case: true", "a.", {"A"}));
  EXPECT_TRUE(is_match("ignore_punctuation: true", "a-b's.", {"ab`s"}));
  EXPECT_FALSE(is_match("ignore_punctuation: true", "a–b", {"ab"})) << "only ASCII's";
  EXPECT_TRUE(is_match("ignore_numbers: true", "a1", {"a22"}));
  const std::string gsm8k = R"(regexes_to_ignore: [",", "\\$", "(?s).*#### ", "\\.$"])";
  EXPECT_TRUE(is_match(gsm8k, "$1,234.", {"They have\n$7.\n#### 1234"}));
  EXPECT_FALSE(is_match(gsm8k, "1.234", {"#### 1234"}));
}

TEST(WrittenTask, AnExpressionThatTakesTooLongCountsAsWrongAndEndsNothing) {
  const WrittenTask task =
      task_of("filter_list: [{name: f, filter: [{function: regex, regex_pattern: \"(?:a|aa)*b\"}]}]");
  const JudgedAnswer soon = judge_answer(task.filters.front(), task.match, "aab", {"aab"});
  EXPECT_EQ(soon.answer, "aab");
  EXPECT_TRUE(soon.is_right && soon.given_up.empty());
  const JudgedAnswer never = judge_answer(task.filters.front(), task.match, std::string(40, 'a'), {""});
  EXPECT_FALSE(never.is_right);
  EXPECT_THAT(never.given_up, HasSubstr("(?:a|aa)*b was given up"));
}

TEST(WrittenTask, Gsm8kIsBuiltInWithTheHarnesssFilters) {
  const WrittenTask task = *built_in_task("gsm8k");
  ASSERT_EQ(task.filters.size(), 2U);
  EXPECT_EQ(task.filters[0].name, "strict-match");
  EXPECT_EQ(task.filters[1].name, "flexible-extract");
  EXPECT_EQ(task.doc_to_text.of({{"question", "How many?"}}), "Question: How many?\nAnswer:");
  EXPECT_FALSE(built_in_task("piqa"));
}

TEST(WrittenTask, WhatIsNotBuiltIsRefusedInOneSentenceThatNamesIt) {
  EXPECT_THAT(task_refusal("process_docs: !function utils.docs"),
              AllOf(StartsWith("my.yaml: "), HasSubstr("process_docs")));
  EXPECT_THAT(task_refusal("description: !function utils.docs"), HasSubstr("description is code (!function)"));
  EXPECT_THAT(task_refusal("gen_prefix: So"), HasSubstr("gen_prefix is not built; docs/evaluation.md"));
  EXPECT_THAT(task_refusal("output_type: multiple_choice"),
              HasSubstr("output_type is multiple_choice, and only generate_until"));
  EXPECT_THAT(task_refusal("repeats: 64"), HasSubstr("repeats is 64, and only 1 is built"));
  EXPECT_THAT(task_refusal("generation_kwargs: {num_beams: 4}"), HasSubstr("generation_kwargs.num_beams is not built"));
  EXPECT_THAT(task_refusal("generation_kwargs: {until: {a: b}}"),
              HasSubstr("generation_kwargs.until is no list of texts"));
  EXPECT_THAT(task_refusal("generation_kwargs: 4"), HasSubstr("generation_kwargs is no map of keys"));
  EXPECT_THAT(task_refusal("metric_list: [{metric: bleu}]"),
              HasSubstr("metric is bleu, and only exact_match is built"));
  EXPECT_THAT(task_refusal("metric_list: [{metric: exact_match}, {metric: bleu}]"), HasSubstr("several metrics"));
  EXPECT_THAT(task_refusal("metric_list: [{metric: exact_match, aggregation: median}]"),
              HasSubstr("only mean is built"));
  EXPECT_THAT(task_refusal("filter_list: [{name: a, filter: [{function: majority_vote}]}]"),
              HasSubstr("is majority_vote, and regex, remove_whitespace and take_first are built"));
  EXPECT_THAT(task_refusal("filter_list: [{name: a, filter: [{function: strip}]}]"),  // the harness has none
              HasSubstr("is strip, and regex, remove_whitespace and take_first are built"));
  EXPECT_THAT(task_refusal("filter_list: [{name: a, filter: [{function: take_first}, {function: remove_whitespace}]}]"),
              HasSubstr("remove_whitespace stands behind take_first, which comes last"));
  EXPECT_THAT(task_refusal("filter_list: [{name: a, filter: []}, {name: a, filter: []}]"), HasSubstr("two filters a"));
  EXPECT_THAT(task_refusal("filter_list: [{name: a, filter: [{function: regex, regex_pattern: \"(a\"}]}]"),
              HasSubstr("filter_list.filter.regex_pattern has a fault: the regular expression (a cannot be used"));
  EXPECT_THAT(task_refusal("dataset_path: openai/gsm8k"), HasSubstr("nothing is downloaded"));
  EXPECT_THAT(task_refusal("dataset_kwargs: {data_files: {train: a.jsonl}}\ntest_split: test"),
              HasSubstr("no file of test_split"));
  EXPECT_THAT(task_refusal("fewshot_config: {sampler: default}"), HasSubstr("only first_n is built"));
  EXPECT_THAT(data::refusal([] { parse_task("doc_to_text: a", "my.yaml"); }), HasSubstr("doc_to_target is missing"));
  EXPECT_THAT(data::refusal([] { parse_task("- a", "my.yaml"); }), HasSubstr("my.yaml is no task"));
  EXPECT_THAT(data::refusal([] { parse_task("a: {b", "my.yaml"); }), HasSubstr("my.yaml is not YAML"));
}

TEST(WrittenTask, RowsAreThoseOfTheSplitThatIsTested) {
  EXPECT_EQ(task_of("dataset_kwargs: {data_files: a.jsonl}").rows.string(), "a.jsonl");
  EXPECT_EQ(task_of("dataset_kwargs: {data_files: {test: a.jsonl, train: b.jsonl}}\ntest_split: test").rows.string(),
            "a.jsonl");
  EXPECT_EQ(task_of("dataset_kwargs: {data_files: {dev: c.jsonl}}\nvalidation_split: dev").rows.string(), "c.jsonl");
}

TEST(EvalTasks, ExamplesOfATaskComeFromOneFile) {
  const std::filesystem::path rows =
      std::filesystem::temp_directory_path() / ("trireme-rows-" + std::to_string(::getpid()) + ".jsonl");
  std::ofstream(rows) << R"({"goal": "a", "sol1": "b", "sol2": "c", "label": 1})" << "\n";
  const std::string piqa = "piqa=" + rows.string();
  EvaluateSettings settings;
  settings.num_fewshot = 1;
  settings.tasks = std::vector<std::string>{piqa};
  settings.fewshot = std::vector<std::string>{piqa};
  const std::vector<EvalTask> tasks = read_tasks(settings);
  settings.fewshot = std::vector<std::string>{piqa, piqa};
  const std::string twice = data::refusal([&] { read_tasks(settings); });
  std::filesystem::remove(rows);
  ASSERT_EQ(tasks.size(), 1U);
  EXPECT_EQ(tasks.front().questions.front().choices.front().context, "Question: a\nAnswer: c\n\nQuestion: a\nAnswer:");
  EXPECT_THAT(twice, HasSubstr("evaluate.fewshot names piqa twice; put its examples into one file"));
}

// Whoever checks a command would leave nothing in it for the ranks.
TEST(EvalTasks, RowsInAPipeAreRefused) {
  const std::string row = "{\"goal\": \"a\", \"sol1\": \"b\", \"sol2\": \"c\", \"label\": 1}\n";
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], row.data(), row.size()), static_cast<ssize_t>(row.size()));
  ::close(ends[1]);
  EvaluateSettings settings;
  settings.tasks = std::vector<std::string>{"piqa=/dev/fd/" + std::to_string(ends[0])};
  EXPECT_THAT(data::refusal([&] { read_tasks(settings); }),
              AllOf(HasSubstr("evaluate.tasks: cannot read /dev/fd/"), HasSubstr("it is a named pipe, not a file")));
  ::close(ends[0]);
}

TEST(Evaluate, ATextInAPipeIsRefusedWhereSeveralRanksReadIt) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  Settings settings;
  settings.evaluate.text = "/dev/fd/" + std::to_string(ends[0]);
  settings.devices = 2;
  EXPECT_THAT(data::refusal([&] { check_evaluate(settings); }),
              HasSubstr("is neither a file nor a folder, and each of 2 ranks would read it"));
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace trireme::train
