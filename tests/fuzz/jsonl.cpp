#include "trireme/data/jsonl.h"

#include <string>

#include "targets.h"

namespace trireme::fuzz {

/// A line of a JSONL file: a text no longer than the line, nothing where it is blank, or one error.
void fuzz_jsonl(std::string_view bytes) {
  if (const auto text = data::jsonl_text(bytes, "text"))
    require(text->size() <= 3 * bytes.size(), "a text is made of what its line holds");
}

}  // namespace trireme::fuzz
