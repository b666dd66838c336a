#include "trireme/config/problems.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme::config {
namespace {
constexpr size_t kMostProblemsShown = 12;
constexpr size_t kMostBytes = 600, kMostBytesTyped = 200;
}  // namespace

std::string shortened(std::string_view text, size_t most_bytes) {
  if (text.size() <= most_bytes) return std::string(text);
  size_t end = most_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

void Problems::add(std::string_view headline, const std::vector<Source>& sources, std::string_view hint) {
  if (paragraphs_.size() >= kMostProblemsShown) {
    ++num_more_;
    return;
  }
  std::string text = fmt::format("error: {}", shortened(headline, kMostBytes));
  for (const Source& source : sources) {
    if (!source.text.empty()) text += fmt::format("\n  {}: {}", source.place, shortened(source.text, kMostBytesTyped));
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
