#include "trireme/config/json_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/config/file_text.h"

namespace trireme::config {
namespace {

using SortedJson = nlohmann::json;

constexpr int kDeepestSettings = 8;

// Counts what the parser has read, which tells the line of each key: the parser stops at the quote that ends it.
struct CountingIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  size_t* consumed;

  reference operator*() const { return *at; }
  CountingIterator& operator++() {
    ++at, ++*consumed;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at == other.at; }
  bool operator!=(const CountingIterator& other) const { return at != other.at; }
};

// Receives the parser's events. A list is collected as texts, with lists in it written out: [[4, 2], [fsdp, tp]].
class Events : public nlohmann::json_sax<SortedJson> {
 public:
  Events(FileText& text, const size_t& consumed, Problems& problems)
      : text_(text), consumed_(consumed), problems_(problems) {}

  bool null() override { return scalar("null", Given::Kind::null, false); }
  bool boolean(bool value) override { return scalar(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return scalar(fmt::format("{}", value)); }
  bool number_unsigned(number_unsigned_t value) override { return scalar(fmt::format("{}", value)); }
  bool number_float(number_float_t, const string_t& text) override { return scalar(text); }
  bool string(string_t& text) override { return scalar(text, Given::Kind::scalar, true); }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override {
    if (depth_ == 0 && lists_.empty())
      ++depth_;
    else if (lists_.empty())
      open_section();
    else
      lists_.push_back({});
    is_empty_ = true;
    return true;
  }
  bool key(string_t& name) override {
    if (!lists_.empty()) return true;
    if (name.empty() || name.size() > FileText::kMostBytesShown || depth_ > kDeepestSettings) {
      problems_.add(fmt::format("{} has a key that is no name", text_.name()), {here()}, "keys are names such as seed");
      return false;
    }
    key_ = prefix_.empty() ? name : prefix_ + "." + name;
    source_ = here();
    is_empty_ = false;
    return true;
  }
  bool end_object() override {
    if (!lists_.empty()) return end_array();
    if (--depth_ == 0) return true;
    if (is_empty_) text_.keep({.key = prefix_, .kind = Given::Kind::section, .source = here()});
    is_empty_ = false;
    const size_t dot = prefixes_.back();
    prefixes_.pop_back();
    prefix_.resize(dot);
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ == 0) return not_a_tree();
    lists_.push_back({});
    return true;
  }
  bool end_array() override {
    const std::vector<std::string> items = std::move(lists_.back());
    lists_.pop_back();
    const std::string whole = fmt::format("[{}]", base::join(items, ", "));
    if (!lists_.empty())
      lists_.back().push_back(whole);
    else
      text_.keep({.key = key_, .kind = Given::Kind::list, .text = whole, .items = items, .source = source_});
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 3, column 5: syntax error while ..."
    std::string why = error.what();
    if (const size_t colon = why.find(": "); colon != std::string::npos) why.erase(0, colon + 2);
    const size_t line = text_.line_of_byte(position == 0 ? 0 : position - 1);
    problems_.add(fmt::format("{} is not valid JSON: {}", text_.name(), why), {text_.place(line)}, "");
    return false;
  }

 private:
  Source here() const { return text_.place(text_.line_of_byte(consumed_ == 0 ? 0 : consumed_ - 1)); }

  bool not_a_tree() {
    problems_.add(fmt::format("{} is not one object of settings", text_.name()), {here()},
                  "it should start like this: {\"train_batch_size\": 64}");
    return false;
  }

  void open_section() {
    ++depth_;
    prefixes_.push_back(prefix_.size());
    prefix_ = key_;
  }

  bool scalar(std::string value, Given::Kind kind = Given::Kind::scalar, bool quoted = false) {
    if (!lists_.empty())
      lists_.back().push_back(std::move(value));
    else if (depth_ == 0)
      return not_a_tree();
    else
      text_.keep({.key = key_, .kind = kind, .text = std::move(value), .quoted = quoted, .source = source_});
    return true;
  }

  FileText& text_;
  const size_t& consumed_;
  Problems& problems_;
  std::string prefix_, key_;
  Source source_;
  std::vector<size_t> prefixes_;               // lengths of the outer prefixes
  std::vector<std::vector<std::string>> lists_;  // open lists, and objects inside them
  int depth_ = 0;
  bool is_empty_ = true;  // the innermost object has no key yet
};

// The same text with spaces in place of comments and of commas behind a last entry, so that all else stays where it is.
// A comment without an end stays, and is no JSON.
std::string plain_json(std::string text) {
  char before = '\0';  // the last character that counts
  size_t comma = std::string::npos;  // if that is it
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = std::string_view(text).substr(i);
    const bool is_block = rest.starts_with("/*");
    if (is_block || rest.starts_with("//") || rest.starts_with('#')) {
      const size_t end = is_block ? rest.find("*/", 2) : std::min(rest.find('\n'), rest.size());
      if (end == std::string_view::npos) return text;
      const size_t length = is_block ? end + 2 : end;
      std::replace_if(
          text.begin() + static_cast<std::ptrdiff_t>(i), text.begin() + static_cast<std::ptrdiff_t>(i + length),
          [](char c) { return c != '\n'; }, ' ');
      i += length - 1;
      continue;
    }
    const char c = text[i];
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') continue;
    if ((c == '}' || c == ']') && comma != std::string::npos) text[comma] = ' ';
    comma = c == ',' && before != ',' && before != '{' && before != '[' ? i : std::string::npos;
    before = c;
    if (c != '"') continue;
    for (++i; i < text.size() && text[i] != '"'; ++i)
      if (text[i] == '\\') ++i;
  }
  return text;
}

}  // namespace

std::vector<Given> read_json_tree(std::string contents, const std::string& name, Problems& problems) {
  FileText text(std::move(contents), name, problems);
  const std::string plain = plain_json(text.contents());
  if (const auto at = base::json_too_deep_at(plain)) {
    problems.add(fmt::format("{} nests more than {} levels deep", name, base::kDeepestJson),
                 {text.place(text.line_of_byte(*at))}, "");
    return {};
  }
  size_t consumed = 0;
  Events events(text, consumed, problems);
  SortedJson::sax_parse(CountingIterator{plain.data(), &consumed},
                        CountingIterator{plain.data() + plain.size(), &consumed}, &events);
  return text.take();
}

}  // namespace trireme::config
