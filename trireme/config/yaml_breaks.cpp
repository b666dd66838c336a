// Works around a fault of yaml-cpp, which reads a quoted text of line breaks alone as an empty one.
#include <algorithm>

#include "trireme/config/yaml_file.h"

namespace trireme::config {

std::string keep_quoted_breaks(std::string_view yaml) {
  std::string out;
  char before = '\n';  // the last character that is no space
  for (size_t at = 0; at < yaml.size(); ++at) {
    const char c = yaml[at];
    const bool begins = (c == '\'' || c == '"') && std::string_view("\n:-,[{").find(before) != std::string_view::npos;
    const size_t end = begins ? yaml.find_first_not_of(" \t\r\n", at + 1) : std::string_view::npos;
    if (end != std::string_view::npos && yaml[end] == c && yaml.substr(end + 1, 1) != yaml.substr(end, 1)) {
      const auto breaks = std::ranges::count(yaml.substr(at, end - at), '\n');
      if (breaks > 1) {  // one is folded to a space
        out += '"';
        for (auto i = breaks; i > 1; --i) out += "\\n";
        out.append("\"").append(static_cast<size_t>(breaks), '\n');  // lines keep their numbers
        before = '"', at = end;
        continue;
      }
    }
    out += c;
    if (c == '\n' || (c != ' ' && c != '\t' && c != '\r')) before = c;
  }
  return out;
}

}  // namespace trireme::config
