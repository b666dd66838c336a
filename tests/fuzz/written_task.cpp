#include <nlohmann/json.hpp>
#include <string>

#include "targets.h"
#include "trireme/train/task_file.h"

namespace trireme::fuzz {

/// A task whose answers are written; what is accepted asks a row and judges an answer.
void fuzz_written_task(std::string_view bytes) {
  const train::WrittenTask task = train::parse_task(std::string(bytes), "task.yaml");
  require(!task.filters.empty() && task.max_new_tokens > 0, "an accepted task writes and filters answers");
  for (const train::AnswerFilter& filter : task.filters)
    train::matches_exactly(task.match, train::filtered(filter, "So it is.\n#### 42"), {"42"});
  const std::string prompt = task.doc_to_text.of({{"question", "How many?"}, {"answer", "42"}});
  require(prompt.size() <= 20 * bytes.size(), "a prompt is made of the template and the row");
}

}  // namespace trireme::fuzz
