#include "trireme/train/eval_tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/parse_whole.h"
#include "trireme/base/text.h"
#include "trireme/text/normalizer.h"
#include "trireme/text/utf8.h"
#include "trireme/train/jsonl_records.h"

namespace trireme::train {
namespace {

using nlohmann::json;

/// A row of a data set as its task asks it. A space comes between context and choice.
struct Row {
  std::string context;
  std::vector<std::string> choices;
  int64_t answer = -1;
  std::vector<std::string> contexts = {};  ///< of each choice, where they differ
  std::string description = {};  ///< before the first example
  std::string group = {};  ///< examples come from rows of the same group
  std::string place = {};  ///< "FILE:LINE"
};

std::vector<std::string> texts_in(const json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_array() || found->empty())
    throw UsageError(fmt::format("there is no list of texts under \"{}\"", key));
  std::vector<std::string> texts;
  for (const json& entry : *found) {
    if (!entry.is_string() || entry.get<std::string>().empty())
      throw UsageError(fmt::format("an entry of \"{}\" is no text, or empty", key));
    texts.push_back(entry.get<std::string>());
  }
  return texts;
}

/// A number from 0 to count - 1; HellaSwag's are numbers in quotes.
int64_t number_in(const json& row, const char* key, size_t count) {
  const auto found = row.find(key);
  int64_t number = -1;
  if (found != row.end() && base::is_whole_number(*found)) number = found->get<int64_t>();
  if (found != row.end() && found->is_boolean()) number = found->get<bool>() ? 1 : 0;
  if (found != row.end() && found->is_string())
    number = base::parse_whole<int64_t>(found->get<std::string>()).value_or(-1);
  if (number < 0 || number >= static_cast<int64_t>(count))
    throw UsageError(fmt::format("\"{}\" is no number from 0 to {}", key, count - 1));
  return number;
}

/// The place of the text under `key` in `names`.
int64_t place_in(const std::vector<std::string>& names, const json& row, const char* key) {
  const std::string name = text::stripped(text_in(row, key));
  const auto found = std::ranges::find(names, name);
  if (found == names.end())
    throw UsageError(fmt::format("\"{}\" is {}, and the choices are {}", key, name, base::join(names, ", ")));
  return found - names.begin();
}

const json& object_in(const json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_object()) throw UsageError(fmt::format("there is no object under \"{}\"", key));
  return *found;
}

// A row of each data set, by the YAML files of lm-evaluation-harness 0.4.13.

/// Marks of WikiHow: [title], [step], ...
std::string without_marks(std::string_view raw) {
  std::string text = text::stripped(raw);
  const auto replace = [&text](std::string_view what, std::string_view with) {
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
      text.replace(at, what.size(), with);
  };
  replace(" [title]", ". ");
  for (size_t begin = 0; (begin = text.find('[', begin)) != std::string::npos;) {
    const size_t end = text.find(']', begin);
    if (end == std::string::npos) break;
    if (text.find('\n', begin) < end)
      ++begin;
    else
      text.erase(begin, end - begin + 1);
  }
  replace("  ", " ");
  return text;
}

/// Bytes of the first character of a text in UTF-8.
size_t first_character(std::string_view text) {
  const auto* end =
      std::find_if(text.data() + !text.empty(), text.data() + text.size(), [](char c) { return (c & 0xC0) != 0x80; });
  return static_cast<size_t>(end - text.data());
}

/// As Python's capitalize().
std::string capitalized(std::string_view text) {
  const size_t first = first_character(text);
  return text::to_title(text.substr(0, first)) + text::to_lower(text.substr(first));
}

/// Without its last character.
std::string_view without_last(std::string_view text) {
  while (!text.empty() && (text.back() & 0xC0) == 0x80) text.remove_suffix(1);
  return text.substr(0, text.empty() ? 0 : text.size() - 1);
}

Row hellaswag(const json& row) {
  Row r{.context = without_marks(fmt::format("{}: {} {}", text_in(row, "activity_label"), text_in(row, "ctx_a"),
                                             capitalized(text_in(row, "ctx_b"))))};
  for (const std::string& ending : texts_in(row, "endings")) r.choices.push_back(without_marks(ending));
  r.answer = number_in(row, "label", r.choices.size());
  return r;
}

Row arc(const json& row) {
  const json& choices = object_in(row, "choices");
  return {.context = fmt::format("Question: {}\nAnswer:", text_in(row, "question")),
          .choices = texts_in(choices, "text"),
          .answer = place_in(texts_in(choices, "label"), row, "answerKey")};
}

Row openbookqa(const json& row) {
  const json& choices = object_in(row, "choices");
  return {.context = text_in(row, "question_stem"),
          .choices = texts_in(choices, "text"),
          .answer = place_in(texts_in(choices, "label"), row, "answerKey")};
}

Row piqa(const json& row) {
  return {.context = fmt::format("Question: {}\nAnswer:", text_in(row, "goal")),
          .choices = {text_in(row, "sol1"), text_in(row, "sol2")},
          .answer = number_in(row, "label", 2)};
}

Row boolq(const json& row) {
  return {.context = fmt::format("{}\nQuestion: {}?\nAnswer:", text_in(row, "passage"), text_in(row, "question")),
          .choices = {"no", "yes"},
          .answer = number_in(row, "label", 2)};
}

Row sciq(const json& row) {
  const std::string support = text_in(row, "support");
  return {.context = fmt::format("{}\nQuestion: {}\nAnswer:", text::stripped(support, {.end = false}),
                                 text_in(row, "question")),
          .choices = {text_in(row, "distractor1"), text_in(row, "distractor2"), text_in(row, "distractor3"),
                      text_in(row, "correct_answer")},
          .answer = 3};
}

Row copa(const json& row) {
  const std::string question = text_in(row, "question"), premise = text::stripped(text_in(row, "premise"));
  if (question != "cause" && question != "effect") throw UsageError("\"question\" is neither cause nor effect");
  Row r{.context = fmt::format("{} {}", without_last(premise), question == "cause" ? "because" : "therefore"),
        .answer = number_in(row, "label", 2)};
  for (const char* key : {"choice1", "choice2"}) {
    const std::string choice = text_in(row, key);
    if (choice.empty()) throw UsageError(fmt::format("\"{}\" is empty", key));
    const size_t first = first_character(choice);
    r.choices.push_back(" " + text::to_lower(choice.substr(0, first)) + choice.substr(first));
  }
  return r;
}

std::string lettered(const std::vector<std::string>& choices) {
  std::string text;
  for (size_t i = 0; i < choices.size(); ++i) text += fmt::format("{}. {}\n", char('A' + i), choices[i]);
  return text;
}

Row commonsense_qa(const json& row) {
  const std::vector<std::string> texts = texts_in(object_in(row, "choices"), "text"), letters{"A", "B", "C", "D", "E"};
  if (texts.size() != letters.size()) throw UsageError("\"choices\" are not five");
  return {.context = fmt::format("Question: {}\n{}Answer:", text::stripped(text_in(row, "question")), lettered(texts)),
          .choices = letters,
          .answer = place_in(letters, row, "answerKey")};
}

Row mmlu(const json& row) {
  const std::vector<std::string> texts = texts_in(row, "choices");
  if (texts.size() != 4) throw UsageError("\"choices\" are not four");
  Row r{.context = fmt::format("{}\n{}Answer:", text::stripped(text_in(row, "question")), lettered(texts)),
        .choices = {"A", "B", "C", "D"},
        .answer = number_in(row, "answer", 4),
        .group = text_in(row, "subject")};
  std::string subject = r.group;
  std::ranges::replace(subject, '_', ' ');
  r.description = fmt::format("The following are multiple choice questions (with answers) about {}.\n\n", subject);
  return r;
}

/// The same end behind the one and the other name.
Row winogrande(const json& row) {
  const std::string sentence = text_in(row, "sentence"), answer = text_in(row, "answer");
  const size_t gap = sentence.find('_');
  if (gap == std::string::npos) throw UsageError("\"sentence\" has no _");
  if (answer != "1" && answer != "2") throw UsageError("\"answer\" is neither \"1\" nor \"2\"");
  const std::string end = text::stripped(sentence.substr(gap + 1));
  return {.context = "",
          .choices = {end, end},
          .answer = answer[0] - '1',
          .contexts = {sentence.substr(0, gap) + text_in(row, "option1"),
                       sentence.substr(0, gap) + text_in(row, "option2")}};
}

Row lambada(const json& row) {
  const std::string text = text_in(row, "text");
  const size_t space = text.rfind(' ');
  if (space == std::string::npos) throw UsageError("\"text\" is one word");
  return {.context = text.substr(0, space), .choices = {text.substr(space)}, .answer = 0};
}

struct BuiltInForm {
  std::string_view name;
  EvalTaskKind kind;
  Row (*read)(const json& row);
};
constexpr BuiltInForm kTasks[] = {{"arc_challenge", EvalTaskKind::choice_norm, arc},
                                  {"arc_easy", EvalTaskKind::choice_norm, arc},
                                  {"boolq", EvalTaskKind::choice, boolq},
                                  {"commonsense_qa", EvalTaskKind::choice, commonsense_qa},
                                  {"copa", EvalTaskKind::choice, copa},
                                  {"hellaswag", EvalTaskKind::choice_norm, hellaswag},
                                  {"lambada_openai", EvalTaskKind::word, lambada},
                                  {"mmlu", EvalTaskKind::choice, mmlu},
                                  {"openbookqa", EvalTaskKind::choice_norm, openbookqa},
                                  {"piqa", EvalTaskKind::choice_norm, piqa},
                                  {"sciq", EvalTaskKind::choice_norm, sciq},
                                  {"winogrande", EvalTaskKind::choice, winogrande}};

/// A task, and how it asks the rows of its file.
struct TaskForm {
  std::string name;
  EvalTaskKind kind = EvalTaskKind::written;
  std::function<Row(const json& row)> read = {};
  std::filesystem::path rows = {};
  std::shared_ptr<const WrittenTask> written = nullptr;
};

int64_t characters_of(std::string_view text) {
  return std::max<int64_t>(1, std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

/// One's own file. A choice brings its own space.
Question own_question(const json& record) {
  const auto first_of = [&record](std::initializer_list<const char*> keys) {
    for (const char* key : keys)
      if (record.contains(key)) return key;
    return *keys.begin();
  };
  Question q;
  const std::string context = text_in(record, first_of({"context", "question", "ctx", "query"}));
  for (const std::string& choice : texts_in(record, first_of({"choices", "endings"}))) {
    const size_t space = std::min(choice.size(), choice.find_first_not_of(' '));
    q.choices.push_back({context, choice, characters_of(std::string_view(choice).substr(space))});
  }
  q.answer = static_cast<size_t>(number_in(record, first_of({"answer", "label", "gold"}), q.choices.size()));
  return q;
}

/// A row with its answer, as it stands before a question.
std::string example_of(const Row& row, const TaskForm& form) {
  const auto right = static_cast<size_t>(row.answer);
  const std::string& context = row.contexts.empty() ? row.context : row.contexts[right];
  if (form.written)
    return context + form.written->target_delimiter + row.choices[right] + form.written->fewshot_delimiter;
  return fmt::format("{} {}\n\n", context, row.choices[right]);
}

/// A word brings its own space, of which examples have two, as in lm-evaluation-harness.
Question question_of(const Row& row, EvalTaskKind kind, const std::string& examples) {
  if (kind == EvalTaskKind::written)
    return {.prompt = row.description + examples + row.context, .targets = row.choices};
  Question q{.answer = static_cast<size_t>(row.answer)};
  for (size_t i = 0; i < row.choices.size(); ++i)
    q.choices.push_back({row.description + examples + (row.contexts.empty() ? row.context : row.contexts[i]),
                         (kind == EvalTaskKind::word ? "" : " ") + row.choices[i], characters_of(row.choices[i])});
  return q;
}

/// "NAME=FILE".
std::pair<std::string, std::filesystem::path> named_file(const std::string& entry, const char* setting) {
  const size_t equals = entry.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == entry.size())
    throw UsageError(fmt::format("{}: {} is no NAME=FILE", setting, entry));
  return {entry.substr(0, equals), entry.substr(equals + 1)};
}

/// A task of the table with the rows of its file, or one that is declared in a file.
TaskForm form_of(const std::string& entry) {
  const auto [name, file] = named_file(entry, "evaluate.tasks");
  const bool is_declaration = file.extension() == ".yaml" || file.extension() == ".yml";
  std::optional<WrittenTask> written = is_declaration ? read_task_file(file) : built_in_task(name);
  if (written) {
    TaskForm form{.name = name, .rows = written->rows.empty() ? file : written->rows};
    form.written = std::make_shared<const WrittenTask>(*std::move(written));
    form.read = [task = form.written](const json& row) {
      return Row{.context = task->doc_to_text.of(row),
                 .choices = task->doc_to_target.all_of(row),
                 .answer = 0,
                 .description = task->description.of(row)};
    };
    return form;
  }
  const auto* const built_in = std::ranges::find(kTasks, name, &BuiltInForm::name);
  if (built_in == std::end(kTasks))
    throw UsageError(
        fmt::format("evaluate.tasks: there is no task {}{}; NAME=FILE names one of {}, and NAME=TASK.yaml "
                    "one of your own",
                    name, base::did_you_mean(name, task_names()), base::join(task_names(), ", ")));
  return {.name = name, .kind = built_in->kind, .read = built_in->read, .rows = file};
}

std::vector<Row> rows_of(const TaskForm& form, const std::filesystem::path& file, const char* setting) {
  std::vector<Row> rows;
  for_each_record(file, setting, "row", [&](const json& record, const std::string& place) {
    rows.push_back(form.read(record));
    rows.back().place = place;
  });
  return rows;
}

/// The first rows of each group, written one below the other.
std::map<std::string, std::string> examples_of(const EvaluateSettings& settings, const TaskForm& form) {
  std::map<std::string, std::string> examples;
  for (const std::string& entry : settings.fewshot.value_or(std::vector<std::string>())) {
    const auto [named, file] = named_file(entry, "evaluate.fewshot");
    if (named != form.name) continue;
    if (!examples.empty())
      throw UsageError(fmt::format("evaluate.fewshot names {} twice; put its examples into one file", form.name));
    std::map<std::string, std::vector<Row>> by_group;
    for (Row& row : rows_of(form, file, "evaluate.fewshot")) by_group[row.group].push_back(std::move(row));
    for (const auto& [group, rows] : by_group) {
      if (std::ssize(rows) < settings.num_fewshot)
        throw UsageError(fmt::format("evaluate.fewshot: {} has {}{}, and evaluate.num_fewshot asks for {}",
                                     file.string(), base::plural(std::ssize(rows), "row"),
                                     group.empty() ? "" : " of " + group, settings.num_fewshot));
      for (int64_t i = 0; i < settings.num_fewshot; ++i)
        examples[group] += example_of(rows[static_cast<size_t>(i)], form);
    }
  }
  return examples;
}

EvalTask read_task(const EvaluateSettings& settings, const std::string& entry) {
  const TaskForm form = form_of(entry);
  EvalTask task{.name = form.name, .kind = form.kind, .written = form.written};
  if (form.written && form.written->num_fewshot.value_or(settings.num_fewshot) != settings.num_fewshot)
    throw UsageError(fmt::format(
        "evaluate.tasks: num_fewshot of {} is {}, and evaluate.num_fewshot is {}; give --num_fewshot {} with --fewshot "
        "{}=FILE.jsonl, or take it out of the file",
        task.name, *form.written->num_fewshot, settings.num_fewshot, *form.written->num_fewshot, task.name));
  const std::map<std::string, std::string> examples = examples_of(settings, form);
  if (settings.num_fewshot > 0 && examples.empty())
    throw UsageError(fmt::format(
        "evaluate.num_fewshot asks for examples of {0}; name their file with --evaluate.fewshot {0}=FILE.jsonl",
        task.name));
  for (const Row& row : rows_of(form, form.rows, "evaluate.tasks")) {
    const auto own = examples.find(row.group);
    if (settings.num_fewshot > 0 && own == examples.end())
      throw UsageError(fmt::format("evaluate.fewshot: there are no examples of {}", row.group));
    task.questions.push_back(question_of(row, form.kind, own == examples.end() ? "" : own->second));
    task.questions.back().place = row.place;
  }
  return task;
}

}  // namespace

std::vector<std::string> task_names() {
  std::vector<std::string> names = built_in_tasks();
  for (const BuiltInForm& form : kTasks) names.emplace_back(form.name);
  std::ranges::sort(names);
  return names;
}

std::vector<EvalTask> read_tasks(const EvaluateSettings& settings) {
  std::vector<EvalTask> tasks;
  if (settings.multiple_choice) {
    tasks.push_back({.name = "multiple choice", .kind = EvalTaskKind::choice_norm});
    for_each_record(*settings.multiple_choice, "evaluate.multiple_choice", "question",
                    [&](const json& record, const std::string& place) {
                      tasks.back().questions.push_back(own_question(record));
                      tasks.back().questions.back().place = place;
                    });
  }
  std::set<std::string> names;
  for (const std::string& entry : settings.tasks.value_or(std::vector<std::string>())) {
    tasks.push_back(read_task(settings, entry));
    if (!names.insert(tasks.back().name).second)
      throw UsageError(fmt::format("evaluate.tasks names {} twice; put its rows into one file", tasks.back().name));
  }
  for (const std::string& entry : settings.fewshot.value_or(std::vector<std::string>()))
    if (const auto [name, file] = named_file(entry, "evaluate.fewshot"); !names.contains(name))
      throw UsageError(fmt::format("evaluate.fewshot: {} is not among evaluate.tasks", name));
  for (EvalTask& task : tasks)
    if (settings.limit && *settings.limit < std::ssize(task.questions))
      task.questions.resize(static_cast<size_t>(*settings.limit));
  return tasks;
}

}  // namespace trireme::train
