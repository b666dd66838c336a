// Tasks whose answers are written, declared as lm-evaluation-harness declares them: YAML with output_type
// generate_until. A key, a filter or a metric that is not built is refused, so that a file never means less than it
// says. A file may name its rows (dataset_path json); gsm8k has its declaration here and gets only rows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/train/answer_match.h"

namespace trireme::train {

/// A text with values of a row in it, {{key}}: the part of Jinja that prompts need. A text that is itself the name of a
/// key means its value.
class RowTemplate {
 public:
  RowTemplate() = default;
  /// Errors    UsageError: an expression, a statement or a comment
  explicit RowTemplate(std::string_view text);

  /// Errors    UsageError naming the key that the row lacks, or whose value is no text, number or true or false
  std::string of(const nlohmann::json& row) const;
  /// The same; if a list is meant, its entries.
  std::vector<std::string> all_of(const nlohmann::json& row) const;

 private:
  struct Piece {
    std::string text;
    bool is_key = false;
  };
  std::string text_;
  std::vector<Piece> pieces_;
};

struct WrittenTask {
  RowTemplate description, doc_to_text;
  RowTemplate doc_to_target;  ///< right answers; the first one stands in examples
  std::string target_delimiter = " ";  ///< between question and answer of an example
  std::string fewshot_delimiter = "\n\n";  ///< behind an example
  std::optional<int64_t> num_fewshot = {};
  std::vector<std::string> until = {};  ///< the answer ends before the first of these
  int64_t max_new_tokens = 256;
  double temperature = 0;  ///< 0: the likeliest token
  std::vector<AnswerFilter> filters = {};
  ExactMatch match = {};
  std::filesystem::path rows = {};  ///< a JSONL file; empty: the declaration names none
};

/// `name` is for messages.
/// Errors    UsageError naming the key
WrittenTask parse_task(const std::string& yaml, const std::string& name);
/// Errors    the same; the file cannot be read, or names no rows
WrittenTask read_task_file(const std::filesystem::path& file);

/// What an answer and its mark depend on beside prompt and targets, as text: where it ends, how it is drawn, filters
/// and metric. Two declarations that mean the same have the same text.
std::string rules_of(const WrittenTask& task);

/// A declaration that is built in; nothing for other names.
std::optional<WrittenTask> built_in_task(std::string_view name);
std::vector<std::string> built_in_tasks();

}  // namespace trireme::train
