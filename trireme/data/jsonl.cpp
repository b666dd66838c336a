#include "trireme/data/jsonl.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/text/json_fields.h"

namespace trireme::data {
namespace {

// Keeps one string of the outermost object and drops the rest, so that big records cost no more than their text.
class FieldFinder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit FieldFinder(const std::string& field) : field_(field) {}

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("true or false"); }
  bool number_integer(number_integer_t) override { return other("a number"); }
  bool number_unsigned(number_unsigned_t) override { return other("a number"); }
  bool number_float(number_float_t, const string_t&) override { return other("a number"); }
  bool binary(binary_t&) override { return other("binary"); }
  bool string(string_t& value) override {
    if (depth_ == 0) throw UsageError("is a string and not an object");
    if (wanted_) text = std::move(value);
    wanted_ = false;
    return true;
  }
  bool key(string_t& name) override {
    wanted_ = depth_ == 1 && name == field_;
    return true;
  }
  bool start_object(std::size_t) override {
    if (depth_ > 0) other("an object");
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    other("a list");
    ++depth_;
    return true;
  }
  bool end_array() override { return end_object(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 5: <what>"
    const std::string_view message = error.what();
    const size_t colon = message.find(": ");
    throw UsageError(fmt::format("is not JSON, at byte {}: {}", position,
                                 text::shown(colon == std::string_view::npos ? message : message.substr(colon + 2))));
  }

  std::optional<std::string> text;

 private:
  bool other(const char* kind) {
    if (depth_ == 0) throw UsageError(fmt::format("is {} and not an object", kind));
    if (wanted_) throw UsageError(fmt::format("its {:?} is {} and not a string", field_, kind));
    return true;
  }

  const std::string& field_;
  int depth_ = 0;
  bool wanted_ = false;
};

}  // namespace

std::optional<std::string> jsonl_text(std::string_view line, const std::string& field) {
  if (line.find_first_not_of(" \t\r\n") == std::string_view::npos) return std::nullopt;
  FieldFinder finder(field);
  nlohmann::json::sax_parse(line, &finder);
  if (!finder.text)
    throw UsageError(fmt::format("has no {:?}; name the field that holds the text with --data.text_field", field));
  return std::move(finder.text);
}

}  // namespace trireme::data
