#include "trireme/config/problems.h"

#include <fmt/format.h>

#include "trireme/base/text.h"

namespace trireme::config {

void Problems::add(std::string_view headline, const std::vector<Source>& sources, std::string_view hint) {
  std::string text = fmt::format("error: {}", headline);
  for (const Source& source : sources) {
    if (!source.text.empty()) text += fmt::format("\n  {}: {}", source.place, source.text);
  }
  if (!hint.empty()) text += fmt::format("\n  {}", hint);
  paragraphs_.push_back(text);
}

void Problems::throw_if_any() const {
  if (!paragraphs_.empty()) throw UsageError(base::join(paragraphs_, "\n\n"));
}

}  // namespace trireme::config
