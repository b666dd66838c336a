#include "trireme/train/task_file.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/config/yaml_file.h"

namespace trireme::train {
namespace {

// Of lm-evaluation-harness 0.4.13.
constexpr std::pair<std::string_view, const char*> kDeclarations[] = {{"gsm8k", R"yaml(
doc_to_text: "Question: {{question}}\nAnswer:"
doc_to_target: "{{answer}}"
metric_list:
  - metric: exact_match
    ignore_case: true
    regexes_to_ignore: [",", "\\$", "(?s).*#### ", "\\.$"]
generation_kwargs:
  until: ["Question:", "</s>", "<|im_end|>"]
filter_list:
  - name: strict-match
    filter:
      - {function: regex, regex_pattern: "#### (\\-?[0-9\\.\\,]+)"}
      - function: take_first
  - name: flexible-extract
    filter:
      - {function: regex, group_select: -1, regex_pattern: "(-?[$0-9.,]{2,})|(-?[0-9]+)"}
      - function: take_first
)yaml"}};

/// Names and remarks, where rows would be fetched from, and the search for copies of them, which is off in the harness.
constexpr const char* kWithoutEffect[] = {"task",          "task_alias",           "tag",
                                          "metadata",      "dataset_name",         "training_split",
                                          "fewshot_split", "should_decontaminate", "doc_to_decontamination_query"};

/// A map of the file. Keys are taken one by one, and those that are left at its end are refused.
class Map {
 public:
  Map(YAML::Node node, std::string file, std::string prefix = "")
      : node_(std::move(node)), file_(std::move(file)), prefix_(std::move(prefix)) {
    if (!node_.IsMap())
      throw UsageError(fmt::format("{}: {} is no map of keys", file_, prefix_.substr(0, prefix_.size() - 1)));
    std::set<std::string> names;
    for (const auto& entry : node_)
      if (entry.first.IsScalar() && !names.insert(entry.first.Scalar()).second)
        refuse(entry.first.Scalar(), "is set twice; leave one out");
  }

  [[noreturn]] void refuse(const std::string& key, std::string_view problem) const {
    throw UsageError(fmt::format("{}: {}{} {}", file_, prefix_, key, problem));
  }

  /// Nothing where the key is absent or null.
  std::optional<YAML::Node> take(const std::string& key) {
    taken_.insert(key);
    const YAML::Node value = std::as_const(node_)[key];
    if (!value.IsDefined() || value.IsNull()) return std::nullopt;
    if (value.Tag().starts_with("!") && value.Tag() != "!")
      refuse(key, fmt::format("is code ({}), which is not run", value.Tag()));
    return value;
  }

  template <typename Value>
  std::optional<Value> value(const std::string& key, std::string_view kind) {
    const std::optional<YAML::Node> node = take(key);
    if (!node) return std::nullopt;
    Value read{};
    if (!node->IsScalar() || !YAML::convert<Value>::decode(*node, read)) refuse(key, fmt::format("is no {}", kind));
    return read;
  }
  std::string text(const std::string& key, std::string_view absent) {
    return value<std::string>(key, "text").value_or(std::string(absent));
  }
  bool flag(const std::string& key, bool absent) { return value<bool>(key, "true or false").value_or(absent); }
  int64_t whole(const std::string& key, int64_t absent) { return value<int64_t>(key, "whole number").value_or(absent); }

  std::optional<std::vector<std::string>> texts(const std::string& key) {
    const std::optional<YAML::Node> node = take(key);
    if (!node) return std::nullopt;
    std::vector<std::string> all;
    if (node->IsMap()) refuse(key, "is no list of texts");
    for (const YAML::Node& entry : *node) {
      if (!entry.IsScalar()) refuse(key, "is no list of texts");
      all.push_back(entry.Scalar());
    }
    if (node->IsScalar()) all.push_back(node->Scalar());
    return all;
  }

  std::optional<Map> map(const std::string& key) {
    const std::optional<YAML::Node> node = take(key);
    return node ? std::optional(Map(*node, file_, fmt::format("{}{}.", prefix_, key))) : std::nullopt;
  }
  /// A list of maps.
  std::vector<Map> maps(const std::string& key) {
    std::vector<Map> all;
    const std::optional<YAML::Node> node = take(key);
    if (node && !node->IsSequence()) refuse(key, "is no list");
    if (node)
      for (const YAML::Node& entry : *node) all.emplace_back(entry, file_, fmt::format("{}{}.", prefix_, key));
    return all;
  }

  /// Takes a key that has one value; its absence means that, too.
  void only(const std::string& key, const std::string& built) {
    if (const std::string given = text(key, built); given != built)
      refuse(key, fmt::format("is {}, and only {} is built", given, built));
  }

  void end() const {
    for (const auto& entry : node_)
      if (!entry.first.IsScalar() || !taken_.contains(entry.first.Scalar()))
        refuse(entry.first.IsScalar() ? entry.first.Scalar() : "a key",
               "is not built; docs/evaluation.md lists the keys that are");
  }

 private:
  YAML::Node node_;
  std::string file_, prefix_;
  std::set<std::string> taken_;
};

RowTemplate template_in(Map& map, const char* key, bool required) {
  const auto text = map.value<std::string>(key, "text");
  if (!text && required) map.refuse(key, "is missing");
  try {
    return RowTemplate(text.value_or(""));
  } catch (const UsageError& error) {
    map.refuse(key, error.what());
  }
}

text::Regex regex_in(const Map& map, const char* key, const std::string& pattern) {
  try {
    return text::Regex(pattern, text::RegexSyntax::python);
  } catch (const UsageError& error) {
    map.refuse(key, fmt::format("has a fault: {}", error.what()));
  }
}

void read_generation(std::optional<Map> map, WrittenTask& task) {
  task.until = {task.fewshot_delimiter};
  if (!map) return;
  task.until = map->texts("until").value_or(task.until);
  if (std::ranges::count(task.until, "") > 0 && task.until != std::vector{task.fewshot_delimiter})
    map->refuse("until", "has an empty word, which would stop nothing");
  task.max_new_tokens = map->whole("max_gen_toks", task.max_new_tokens);
  if (task.max_new_tokens < 1) map->refuse("max_gen_toks", "is below 1");
  const double temperature = map->value<double>("temperature", "number").value_or(0);
  if (!(temperature >= 0 && temperature < 1e6)) map->refuse("temperature", "is no number from 0 on");
  const bool draws = map->flag("do_sample", temperature > 0);
  if (draws && temperature == 0) map->refuse("do_sample", "draws tokens, which takes a temperature above 0");
  task.temperature = draws ? temperature : 0;
  map->end();
}

AnswerFilter read_filter(Map& map) {
  AnswerFilter filter{.name = map.text("name", "")};
  if (filter.name.empty()) map.refuse("name", "is missing");
  bool is_over = false;
  for (Map& step : map.maps("filter")) {
    const std::string function = step.text("function", "");
    if (is_over) step.refuse("function", fmt::format("{} stands behind take_first, which comes last", function));
    if (function == "regex") {
      AnswerFilter::Step search{.group_select = step.whole("group_select", 0),
                                .fallback = step.text("fallback", "[invalid]")};
      search.regex = regex_in(step, "regex_pattern", step.text("regex_pattern", R"(#### (\-?[0-9\.\,]+))"));
      filter.steps.push_back(std::move(search));
    } else if (function == "remove_whitespace") {
      filter.steps.emplace_back();
    } else if (function == "take_first") {
      is_over = true;
    } else {
      step.refuse("function", fmt::format("is {}, and regex, remove_whitespace and take_first are built",
                                          function.empty() ? "missing" : function));
    }
    step.end();
  }
  map.end();
  return filter;
}

ExactMatch read_match(Map& map) {
  map.only("metric", "exact_match");
  map.only("aggregation", "mean");
  map.take("higher_is_better");
  ExactMatch match{.ignore_case = map.flag("ignore_case", false),
                   .ignore_punctuation = map.flag("ignore_punctuation", false),
                   .ignore_numbers = map.flag("ignore_numbers", false)};
  for (const std::string& pattern : map.texts("regexes_to_ignore").value_or(std::vector<std::string>()))
    match.regexes_to_ignore.push_back(regex_in(map, "regexes_to_ignore", pattern));
  map.end();
  return match;
}

/// One file, or a file for each split.
std::filesystem::path rows_in(Map& task) {
  const std::string path = task.text("dataset_path", "json"),
                    split = task.text("test_split", task.text("validation_split", ""));
  if (path != "json")
    task.refuse("dataset_path",
                fmt::format("is {}, and nothing is downloaded: write its rows to a file, and name it with dataset_path "
                            "json and dataset_kwargs {{data_files: FILE.jsonl}}",
                            path));
  std::optional<Map> keywords = task.map("dataset_kwargs");
  if (!keywords) return {};
  const std::optional<YAML::Node> files = keywords->take("data_files");
  std::string file;
  if (files && files->IsScalar()) file = files->Scalar();
  if (files && files->IsMap()) file = keywords->map("data_files")->text(split, "");
  if (file.empty()) keywords->refuse("data_files", "names no file of test_split");
  keywords->end();
  return file;
}

std::string value_text(const nlohmann::json& value, const std::string& key) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_number()) return value.dump();
  throw UsageError(fmt::format("\"{}\" is no text or number", key));
}

/// Whether lm-evaluation-harness makes a list of a target, because it is written as one of Python's.
bool is_python_list(const std::string& target) {
  if (!target.starts_with('[') || !target.ends_with(']')) return false;
  static const std::string kValue =
      R"((?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|[+\-]?[0-9][0-9.eE_+\-]*|True|False|None))";
  static const text::Regex kList("^\\[\\s*(?:" + kValue + "(?:\\s*,\\s*" + kValue + ")*\\s*,?)?\\s*\\]$",
                                 text::RegexSyntax::python);
  return !kList.all_groups(target).empty();
}

const nlohmann::json& value_in(const nlohmann::json& row, const std::string& key) {
  const auto found = row.find(key);
  if (found == row.end()) throw UsageError(fmt::format("there is no \"{}\"", key));
  return *found;
}

}  // namespace

RowTemplate::RowTemplate(std::string_view text) : text_(text) {
  for (size_t at = 0; at < text.size();) {
    const size_t open = std::min(text.size(), text.find('{', at));
    const std::string_view two = text.substr(open, 2);
    if (two == "{%" || two == "{#") throw UsageError(fmt::format("has {}, and only {{{{key}}}} is built", two));
    if (two != "{{") {
      const size_t end = std::min(text.size(), open + 1);
      pieces_.push_back({.text = std::string(text.substr(at, end - at))});
      at = end;
      continue;
    }
    pieces_.push_back({.text = std::string(text.substr(at, open - at))});
    const size_t close = text.find("}}", open);
    if (close == std::string_view::npos) throw UsageError("has {{ without its }}");
    std::string_view key = text.substr(open + 2, close - open - 2);
    const auto is_blank = [](char c) { return c == ' ' || c == '\n' || c == '\t'; };
    while (!key.empty() && is_blank(key.front())) key.remove_prefix(1);
    while (!key.empty() && is_blank(key.back())) key.remove_suffix(1);
    const auto is_of_name = [](char c) {
      return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    };
    if (key.empty() || !std::ranges::all_of(key, is_of_name))
      throw UsageError(fmt::format("has the expression {{{{{}}}}}, and only {{{{key}}}} is built", key));
    pieces_.push_back({.text = std::string(key), .is_key = true});
    at = close + 2;
  }
}

std::string RowTemplate::of(const nlohmann::json& row) const {
  if (row.contains(text_)) return value_text(row[text_], text_);
  std::string text;
  for (const Piece& piece : pieces_)
    text += piece.is_key ? value_text(value_in(row, piece.text), piece.text) : piece.text;
  return text;
}

std::vector<std::string> RowTemplate::all_of(const nlohmann::json& row) const {
  if (!row.contains(text_)) {
    std::string target = of(row);
    if (is_python_list(target))
      throw UsageError(
          fmt::format("the target {} is a list in lm-evaluation-harness; write a JSON list under a key of "
                      "the row, and name the key alone: doc_to_target: KEY",
                      base::shortened(target)));
    return {std::move(target)};
  }
  if (!row[text_].is_array()) return {of(row)};
  std::vector<std::string> all;
  for (const nlohmann::json& entry : row[text_]) all.push_back(value_text(entry, text_));
  if (all.empty()) throw UsageError(fmt::format("\"{}\" is empty", text_));
  return all;
}

WrittenTask parse_task(const std::string& yaml, const std::string& name) try {
  if (config::count_yaml_documents(yaml) != 1) throw UsageError(fmt::format("{} is not one task", name));
  const YAML::Node tree = YAML::Load(config::keep_quoted_breaks(yaml));
  if (!tree.IsMap()) throw UsageError(fmt::format("{} is no task: a task has keys such as doc_to_text", name));
  Map map(tree, name);
  for (const char* key : kWithoutEffect) map.take(key);
  map.only("output_type", "generate_until");
  map.only("repeats", "1");
  WrittenTask task;
  task.description = template_in(map, "description", false);
  task.doc_to_text = template_in(map, "doc_to_text", true);
  task.doc_to_target = template_in(map, "doc_to_target", true);
  task.target_delimiter = map.text("target_delimiter", task.target_delimiter);
  task.fewshot_delimiter = map.text("fewshot_delimiter", task.fewshot_delimiter);
  task.num_fewshot = map.value<int64_t>("num_fewshot", "whole number");
  if (task.num_fewshot.value_or(0) < 0) map.refuse("num_fewshot", "is below 0");
  if (std::optional<Map> fewshot = map.map("fewshot_config")) {
    fewshot->only("sampler", "first_n");
    fewshot->end();
  }
  read_generation(map.map("generation_kwargs"), task);
  std::set<std::string> names;
  for (Map& filter : map.maps("filter_list")) {
    task.filters.push_back(read_filter(filter));
    if (!names.insert(task.filters.back().name).second)
      map.refuse("filter_list", fmt::format("has two filters {}", task.filters.back().name));
  }
  if (task.filters.empty()) task.filters.emplace_back();
  std::vector<Map> metrics = map.maps("metric_list");
  if (metrics.size() > 1) map.refuse("metric_list", "has several metrics, and only exact_match is built");
  if (!metrics.empty()) task.match = read_match(metrics.front());
  task.rows = rows_in(map);
  map.end();
  return task;
} catch (const YAML::Exception& error) {
  throw UsageError(fmt::format("{} is not YAML: {}", name, base::yaml_reason(error.what())));
}

WrittenTask read_task_file(const std::filesystem::path& file) {
  std::string yaml;
  try {
    yaml = base::read_side_file(file);
  } catch (const base::FileError& error) {
    throw UsageError(fmt::format("evaluate.tasks: {}", error.what()));
  }
  WrittenTask task = parse_task(yaml, file.string());
  if (task.rows.empty())
    throw UsageError(fmt::format(
        "{} names no rows; add dataset_path: json and dataset_kwargs: {{data_files: FILE.jsonl}}", file.string()));
  if (!base::is_file(task.rows))
    throw UsageError(
        fmt::format("{}: there is no file {} (data_files); its path counts from the folder that this starts in",
                    file.string(), task.rows.string()));
  return task;
}

std::string rules_of(const WrittenTask& task) {
  nlohmann::ordered_json filters = nlohmann::ordered_json::array(), ignored = filters;
  for (const AnswerFilter& filter : task.filters) {
    nlohmann::ordered_json steps = nlohmann::ordered_json::array();
    for (const AnswerFilter::Step& step : filter.steps)
      steps.push_back(step.regex ? nlohmann::ordered_json{step.regex->pattern(), step.group_select, step.fallback}
                                 : nlohmann::ordered_json());
    filters.push_back({{"name", filter.name}, {"steps", steps}});
  }
  for (const text::Regex& regex : task.match.regexes_to_ignore) ignored.push_back(regex.pattern());
  return base::json_text(nlohmann::ordered_json{{"until", task.until},
                                                {"max_new_tokens", task.max_new_tokens},
                                                {"temperature", task.temperature},
                                                {"filters", filters},
                                                {"regexes_to_ignore", ignored},
                                                {"ignore_case", task.match.ignore_case},
                                                {"ignore_punctuation", task.match.ignore_punctuation},
                                                {"ignore_numbers", task.match.ignore_numbers}});
}

std::optional<WrittenTask> built_in_task(std::string_view name) {
  const auto* const found = std::ranges::find(kDeclarations, name, &std::pair<std::string_view, const char*>::first);
  if (found == std::end(kDeclarations)) return std::nullopt;
  return parse_task(found->second, std::string(name));
}

std::vector<std::string> built_in_tasks() {
  std::vector<std::string> names;
  for (const auto& [name, yaml] : kDeclarations) names.emplace_back(name);
  return names;
}

}  // namespace trireme::train
