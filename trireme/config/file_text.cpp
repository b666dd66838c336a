#include "trireme/config/file_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trireme/base/text.h"

namespace trireme::config {

FileText::FileText(std::string contents, std::string name, Problems& problems)
    : name_(std::move(name)), problems_(problems), contents_(std::move(contents)) {
  for (size_t at = contents_.find('\n'); at != std::string::npos; at = contents_.find('\n', at + 1))
    line_starts_.push_back(at + 1);
}

std::string_view FileText::line(size_t number) const {
  const std::string_view rest = std::string_view(contents_).substr(line_starts_[number]);
  return rest.substr(0, rest.find('\n'));
}

size_t FileText::line_of_byte(size_t position) const {
  const auto after = std::upper_bound(line_starts_.begin(), line_starts_.end(), position);
  return static_cast<size_t>(after - line_starts_.begin()) - 1;
}

Source FileText::place(size_t number) const {
  std::string_view text = line(std::min(number, line_starts_.size() - 1));
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  text = text.substr(0, text.find_last_not_of(" \t\r") + 1);
  const std::string shown = base::shortened(text, kMostBytesShown);
  return {Source::Kind::file, fmt::format("{}:{}", name_, number + 1), shown.empty() ? "(empty line)" : shown};
}

void FileText::keep(Given given) {
  const auto [first, fresh] = sources_.emplace(given.key, given.source);
  if (fresh)
    found_.push_back(std::move(given));
  else
    problems_.add(fmt::format("{} is set twice in {}", given.key, name_), {first->second, given.source},
                  "keep one of the two lines");
}

}  // namespace trireme::config
