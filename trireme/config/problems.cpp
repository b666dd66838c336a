#include "trireme/config/problems.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme::config {
namespace {
constexpr size_t kMostProblemsShown = 12;
constexpr size_t kMostBytes = 600, kMostBytesTyped = 200;
}  // namespace

void Problems::add(std::string_view headline, const std::vector<Source>& sources, std::string_view hint) {
  if (paragraphs_.size() >= kMostProblemsShown) {
    ++num_more_;
    return;
  }
  std::string text = fmt::format("error: {}", base::shortened(headline, kMostBytes));
  for (const Source& source : sources) {
    if (!source.text.empty())
      text += fmt::format("\n  {}: {}", source.place, base::shortened(source.text, kMostBytesTyped));
  }
  if (!hint.empty()) text += fmt::format("\n  {}", hint);
  paragraphs_.push_back(text);
}

void Problems::throw_if_any() const {
  if (paragraphs_.empty()) return;
  std::string text = base::join(paragraphs_, "\n\n");
  if (num_more_ > 0) text += fmt::format("\n\nerror: and {} more", num_more_);
  throw UsageError(text);
}

}  // namespace trireme::config
