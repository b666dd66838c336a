#include "trireme/data/jsonl.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/data/record_json.h"
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
    if (wanted_ && seen_) throw UsageError(fmt::format("has {:?} twice; leave one out", field_));
    seen_ = seen_ || wanted_;
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
    constexpr int kOutOfRange = 406;  // a number that no double holds
    if (error.id == kOutOfRange) return false;
    throw NotJson{position};
  }

  struct NotJson {
    size_t byte;
  };
  std::optional<std::string> text;

 private:
  bool other(const char* kind) {
    if (depth_ == 0) throw UsageError(fmt::format("is {} and not an object", kind));
    if (wanted_) throw UsageError(fmt::format("its {:?} is {} and not a string", field_, kind));
    return true;
  }

  const std::string& field_;
  int depth_ = 0;
  bool wanted_ = false, seen_ = false;
};

// Whether `line` is read whole: no number in it is too large.
bool find(std::string_view line, FieldFinder& finder) try {
  return nlohmann::json::sax_parse(line, &finder);
} catch (const FieldFinder::NotJson& error) {
  throw UsageError(not_a_record(line, error.byte));
}

[[noreturn]] void refuse_without(const std::string& field, std::string_view line) {
  const auto record =
      base::parse_json_if_sound<nlohmann::ordered_json>(without_huge_numbers(line).value_or(std::string(line)));
  if (is_pair(record)) throw UsageError(kOfPairs);
  const std::string there_is = fmt::format("has no {:?}; there is {}", text::shown(field), keys_of(record));
  if (field != "text") throw UsageError(there_is + (record.empty() ? "" : ": name one of them with data.text_field"));
  throw UsageError(
      fmt::format("{}; name the field that holds the text with --data.text_field{}", there_is,
                  record.size() < 2
                      ? ""
                      : "; conversations have messages, conversations, or instruction and output (prompt, response)"));
}

}  // namespace

std::optional<std::string> jsonl_text(std::string_view line, const std::string& field) {
  if (line.find_first_not_of(" \t\r\n") == std::string_view::npos) return std::nullopt;
  FieldFinder finder(field);
  if (find(line, finder)) {
    if (!finder.text) refuse_without(field, line);
    return std::move(finder.text);
  }
  const auto smaller = without_huge_numbers(line);
  FieldFinder again(field);
  if (!smaller || !find(*smaller, again)) throw UsageError(not_a_record(line, 0));
  if (!again.text) refuse_without(field, line);
  return std::move(again.text);
}

}  // namespace trireme::data
