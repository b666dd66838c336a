// Works around a fault of yaml-cpp, which reads a quoted text of line breaks alone as an empty one.
#include <algorithm>

#include "trireme/config/yaml_file.h"

namespace trireme::config {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";

// Behind the quote that closes the text that begins at `at`, or the end of the file.
size_t end_of_quoted(std::string_view yaml, size_t at) {
  const char quote = yaml[at];
  for (size_t i = at + 1; i < yaml.size(); ++i) {
    if (quote == '"' && yaml[i] == '\\')
      ++i;
    else if (yaml[i] == quote && quote == '\'' && yaml.substr(i + 1, 1) == "'")
      ++i;
    else if (yaml[i] == quote)
      return i + 1;
  }
  return yaml.size();
}

size_t end_of_line(std::string_view yaml, size_t at) {
  const size_t end = yaml.find('\n', at);
  return end == std::string_view::npos ? yaml.size() : end + 1;
}

// Behind the lines of a block scalar (key: |), whose header ends at `at`: as far as they are indented as its first one.
size_t end_of_block(std::string_view yaml, size_t at) {
  size_t indent = 0;
  for (size_t line = at; line < yaml.size(); line = end_of_line(yaml, line)) {
    const size_t text = std::min(yaml.find_first_not_of(' ', line), yaml.size());
    if (text == yaml.size() || yaml[text] == '\n' || yaml[text] == '\r') continue;
    if (indent == 0) indent = text - line;
    if (indent == 0 || text - line < indent) return line;
  }
  return yaml.size();
}

// Whether the rest of a line is that of a block scalar's header, behind its | or >.
bool is_block_header(std::string_view rest) {
  const size_t end = std::min(rest.find_first_not_of("0123456789+-"), rest.size());
  const size_t text = std::min(rest.find_first_not_of(kSpaces, end), rest.size());
  return text == rest.size() || (rest[text] == '#' && text > end);
}

}  // namespace

std::string keep_quoted_breaks(std::string_view yaml) {
  std::string out;
  char before = '\n';  // the last character that is no space
  const auto copy = [&](size_t from, size_t to) { out += yaml.substr(from, to - from); };
  for (size_t at = 0; at < yaml.size();) {
    const char c = yaml[at];
    const bool begins_value = std::string_view("\n:-,[{").find(before) != std::string_view::npos;
    if (begins_value && (c == '\'' || c == '"')) {
      const size_t end = end_of_quoted(yaml, at);
      const bool is_blank = yaml.find_first_not_of(kSpaces, at + 1) == end - 1;
      const auto breaks = std::ranges::count(yaml.substr(at, end - at), '\n');
      if (is_blank && breaks > 1) {  // one is folded to a space
        out += '"';
        for (auto i = breaks; i > 1; --i) out += "\\n";
        out.append("\"").append(static_cast<size_t>(breaks), '\n');  // lines keep their numbers
      } else {
        copy(at, end);
      }
      before = c, at = end;
    } else if (c == '#' && (at == 0 || kSpaces.find(yaml[at - 1]) != std::string_view::npos)) {
      const size_t end = end_of_line(yaml, at);
      copy(at, end);
      before = '\n', at = end;
    } else if (begins_value && (c == '|' || c == '>') &&
               is_block_header(yaml.substr(at + 1, end_of_line(yaml, at) - at - 1))) {
      const size_t end = end_of_block(yaml, end_of_line(yaml, at));
      copy(at, end);
      before = '\n', at = end;
    } else {
      out += c;
      if (c == '\n' || kSpaces.find(c) == std::string_view::npos) before = c;
      ++at;
    }
  }
  return out;
}

}  // namespace trireme::config
