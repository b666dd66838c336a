#include "trireme/config/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>
#include <system_error>
#include <type_traits>

#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/config/value_types.h"

namespace trireme::config {
namespace {

std::string lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

std::string shown(const Given& given) {
  switch (given.kind) {
    case Given::Kind::null:
      return given.text.empty() ? "nothing" : given.text;
    case Given::Kind::list:
      return "the list " + given.text;
    case Given::Kind::section:
      return "a group of settings";
    case Given::Kind::scalar:
      break;
  }
  return given.text.empty() ? "an empty text" : fmt::format("'{}'", given.text);
}

std::string or_absent(const Setting& setting) {
  return setting.rules.absent.empty() ? "" : fmt::format(" or {}", setting.rules.absent);
}

// What the setting wants, with an article, for "<key> wants <this>".
std::string wanted(const Setting& setting) {
  const std::string type = type_name(setting);
  if (type == "choice") return allowed_text(setting);
  if (type == "name") return one_of(setting.rules.classes);
  if (type == "choice or text") return allowed_text(setting);
  if (type == "size") return "a size such as 512MiB or 5GB";
  if (type == "two numbers") return fmt::format("two numbers such as [0.9, 0.95]{}", or_absent(setting));
  if (type == "time") return "a time such as 30s, 10m or 1h30m";
  if (type == "list of names" && !setting.rules.classes.empty()) return "a list of " + one_of(setting.rules.classes);
  const bool plural = type == "true or false" || type == "text";
  return (plural ? type : "a " + type) + or_absent(setting);
}

Refusal wrong_type(const Setting& setting, const Given& given) {
  const bool is_map = given.kind == Given::Kind::section && !setting.rules.example.empty();
  return {fmt::format("{} wants {}, not {}", setting.key, wanted(setting), shown(given)),
          is_map ? fmt::format("write for instance {}: {}", setting.key, setting.rules.example) : ""};
}

bool is_a_path(const std::string& text) {
  std::error_code ignored;
  constexpr std::string_view kEndings[] = {".txt", ".json", ".jsonl", ".parquet", ".csv", ".bin", ".idx"};
  return text.find('/') != std::string::npos ||
         std::ranges::any_of(kEndings, [&](std::string_view ending) { return text.ends_with(ending); }) ||
         (!text.empty() && std::filesystem::exists(text, ignored));
}

Refusal not_among(const Setting& setting, const Given& given, const std::vector<std::string>& names) {
  Refusal refusal = wrong_type(setting, given);
  if (!setting.rules.with_path.empty() && is_a_path(given.text)) {
    const std::string path = base::shell_quoted(given.text);
    const bool may_be_records = given.text.ends_with(".json") || given.text.ends_with(".jsonl");
    refusal.hint = fmt::format("a path is given with {} {}", setting.rules.with_path, path);
    if (may_be_records && !setting.rules.with_records.empty())
      refusal.hint += fmt::format(" (texts) or {} {} (conversations, pairs)", setting.rules.with_records, path);
  } else if (const std::optional<std::string> near = base::nearest(lower(given.text), names)) {
    refusal.hint = fmt::format("the nearest is {}", *near);
  }
  for (const auto& [word, way_out] : setting.rules.other_values)
    if (lower(given.text) == word) refusal.hint = way_out;
  return refusal;
}

bool within(const Rules& rules, double value) {
  return !(rules.at_least && value < *rules.at_least) && !(rules.above && value <= *rules.above) &&
         !(rules.at_most && value > *rules.at_most) && !(rules.below && value >= *rules.below);
}

// 1e30 is a whole number but too large; 3B is not how numbers are written here.
Refusal wrong_number(const Setting& setting, const Given& given) {
  Refusal refusal = wrong_type(setting, given);
  const std::optional<double> number = base::parse_number(given.text);
  const bool begins_well = !given.text.empty() && given.text[0] >= '0' && given.text[0] <= '9';
  constexpr int64_t kMost = 9'000'000'000'000'000'000;  // nearly the largest int64_t
  if (number && std::abs(*number) > double(kMost)) {
    const std::string bounds =
        within(setting.rules, *number)
            ? fmt::format("at {} {}", *number < 0 ? "least" : "most", base::human_count(*number < 0 ? -kMost : kMost))
            : bounds_text(setting.rules, false);
    refusal.headline = fmt::format("{} must be {}, not {}", setting.key, bounds, given.text);
  } else if (begins_well && !setting.rules.bytes)
    refusal.hint = "a whole number is written 4096, 4_096 or 3e9";
  return refusal;
}

std::optional<Refusal> check_bounds(const Setting& setting, const Given& given, double value, bool seconds = false) {
  if (within(setting.rules, value)) return std::nullopt;
  const Rules& r = setting.rules;
  const bool has_off = r.absent == "null" || r.absent == "none";
  const bool is_off = value <= 0 && has_off && !r.when_absent.empty();  // as other systems switch it off
  return Refusal{fmt::format("{} must be {}, not {}", setting.key, bounds_text(r, seconds), given.text),
                 is_off ? fmt::format("{} means {}", r.absent, r.when_absent) : ""};
}

std::optional<Refusal> read(const Setting& setting, const Given& given, bool& out) {
  const std::string word = lower(given.text);
  if (word == "true" || word == "yes" || word == "on") {
    out = true;
  } else if (word == "false" || word == "no" || word == "off") {
    out = false;
  } else {
    return wrong_type(setting, given);
  }
  return std::nullopt;
}

std::optional<Refusal> read(const Setting& setting, const Given& given, int64_t& out) {
  const std::optional<int64_t> number =
      setting.rules.bytes ? base::parse_bytes(given.text) : base::parse_count(given.text);
  if (!number) return wrong_number(setting, given);
  out = *number;
  return check_bounds(setting, given, static_cast<double>(out));
}

std::optional<Refusal> read(const Setting& setting, const Given& given, double& out) {
  const std::optional<double> number = base::parse_number(given.text);
  if (!number) return wrong_type(setting, given);
  out = *number;
  return check_bounds(setting, given, out);
}

std::optional<Refusal> read(const Setting& setting, const Given& given, std::string& out) {
  if (setting.rules.classes.empty()) {
    if (given.text.empty() && !setting.rules.may_be_empty) return wrong_type(setting, given);
    out = given.text;
    return std::nullopt;
  }
  for (const std::string& known : setting.rules.classes) {
    if (lower(known) == lower(given.text)) {
      out = known;
      return std::nullopt;
    }
  }
  return not_among(setting, given, setting.rules.classes);
}

std::optional<Refusal> read(const Setting& setting, const Given& given, Milliseconds& out) {
  const std::optional<Milliseconds> time = base::parse_duration(given.text);
  if (!time) return wrong_type(setting, given);
  constexpr std::chrono::hours kLongest(24 * 36'500);  // a sum with the clock's time, in nanoseconds, has 63 bits
  if (*time > kLongest)
    return Refusal{fmt::format("{} must be at most 100 years (36500d), not {}", setting.key, given.text), ""};
  out = *time;
  return check_bounds(setting, given, static_cast<double>(out.count()) / 1000, true);
}

std::string without_spaces(std::string text) {
  text.erase(0, std::min(text.find_first_not_of(' '), text.size()));
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

// The quote that ends what begins with the one at `open`; npos if there is none at either place.
size_t closing_quote(const std::string& text, size_t open) {
  if (open >= text.size() || (text[open] != '"' && text[open] != '\'')) return std::string::npos;
  for (size_t at = open + 1; at < text.size(); at += text[open] == '"' && text[at] == '\\' ? 2 : 1)
    if (text[at] == text[open]) return at;
  return std::string::npos;
}

// Without spaces around it and, if all of it is in quotes, without these; double quotes may hold JSON's escapes.
std::string trimmed(const std::string& given) {
  const std::string text = without_spaces(given);
  if (text.empty() || closing_quote(text, 0) != text.size() - 1) return text;
  if (const auto unescaped = base::parse_json_if_sound(text); unescaped.is_string())
    return unescaped.get<std::string>();
  return text.substr(1, text.size() - 2);
}

// The comma behind the item that begins at `start`, or the end. Commas in the item's quotes do not count.
size_t end_of_item(const std::string& text, size_t start) {
  const size_t first = text.find_first_not_of(' ', start), closed = closing_quote(text, first);
  return std::min(text.find(',', closed == std::string::npos ? start : closed), text.size());
}

// A list as JSON has it, whose texts may hold commas and escapes: ["a, b", "\n"].
std::optional<std::vector<std::string>> json_items(const std::string& text) {
  const auto list = base::parse_json_if_sound(text);
  if (!list.is_array()) return std::nullopt;
  std::vector<std::string> items;
  for (const auto& item : list) {
    if (item.is_structured()) return std::nullopt;
    items.push_back(item.is_string() ? item.get<std::string>() : item.dump());
  }
  return items;
}

// A list from YAML, or from the command line: [0.9,0.95], (0.9, 0.95), 0.9,0.95, one item alone, or a list of JSON.
// Items may be in quotes: [END, "\n", "a, b"].
std::vector<std::string> items_of(const Given& given) {
  if (given.kind != Given::Kind::scalar) return given.items;
  std::string text = trimmed(given.text);
  if (text.find('"') != std::string::npos)
    if (const auto items = json_items(text)) return *items;
  const auto within_pair = [&](char open, char close) {
    return text.size() > 1 && text.front() == open && text.back() == close;
  };
  if (within_pair('[', ']') || within_pair('(', ')')) text = without_spaces(text.substr(1, text.size() - 2));
  std::vector<std::string> items;
  for (size_t start = 0; start <= text.size() && !text.empty();) {
    const size_t end = end_of_item(text, start);
    items.push_back(trimmed(text.substr(start, end - start)));
    start = end + 1;
  }
  return items;
}

std::optional<Refusal> read(const Setting& setting, const Given& given, std::vector<int64_t>& out) {
  for (const std::string& item : items_of(given)) {
    const std::optional<int64_t> number = base::parse_count(item);
    if (!number) return wrong_type(setting, given);
    out.push_back(*number);
    if (std::optional<Refusal> refusal = check_bounds(setting, given, static_cast<double>(*number))) return refusal;
  }
  if (out.empty()) return wrong_type(setting, given);
  return std::nullopt;
}

std::optional<Refusal> read(const Setting& setting, const Given& given, std::vector<std::string>& out) {
  const std::vector<std::string>& names = setting.rules.classes;
  std::vector<std::string> items = items_of(given);
  // One text alone, as it was given: to stop at " a" is not to stop at "a".
  if (names.empty() && given.kind == Given::Kind::scalar && items.size() == 1 &&
      items.front() == without_spaces(given.text))
    items.front() = given.text;
  for (std::string& item : items) {
    if (!names.empty() && std::find(names.begin(), names.end(), item) == names.end()) {
      const std::optional<std::string> near = base::nearest(item, names);
      return Refusal{wrong_type(setting, given).headline, near ? fmt::format("the nearest is {}", *near) : ""};
    }
    out.push_back(std::move(item));
  }
  if (out.empty()) return wrong_type(setting, given);
  return std::nullopt;
}

std::optional<Refusal> read(const Setting& setting, const Given& given, Pair& out) {
  const std::vector<std::string> items = items_of(given);
  if (items.size() != out.size()) return wrong_type(setting, given);
  for (size_t i = 0; i < out.size(); ++i) {
    const std::optional<double> number = base::parse_number(items[i]);
    if (!number) return wrong_type(setting, given);
    out[i] = *number;
    if (std::optional<Refusal> refusal = check_bounds(setting, given, out[i])) return refusal;
  }
  return std::nullopt;
}

// The row that a word names; nothing if there is none.
std::optional<size_t> row_of(const ChoiceValue& choice, const std::string& word) {
  const std::span<const ChoiceValue::Word> words = choice.words();
  const auto at = std::find_if(words.begin(), words.end(), [&](const ChoiceValue::Word& row) {
    return word == lower(std::string(row.name)) ||
           std::ranges::any_of(row.aliases, [&](std::string_view alias) { return word == lower(std::string(alias)); });
  });
  return at == words.end() ? std::nullopt : std::optional<size_t>(at - words.begin());
}

std::optional<Refusal> take(const Setting& setting, const Given& given, const ChoiceValue& choice) {
  const std::string word = lower(given.text);
  if (const std::optional<size_t> row = row_of(choice, word)) {
    const ChoiceValue::Word& found = choice.words()[*row];
    if (found.available) {
      choice.set(*row);
      return std::nullopt;
    }
    const std::string also = word == lower(std::string(found.name)) ? "" : fmt::format(" ({})", found.name);
    return Refusal{fmt::format("{} {}{} is not built yet", setting.key, given.text, also),
                   fmt::format("{} can be {}", setting.key, allowed_text(setting))};
  }
  std::vector<std::string> spellings;
  for (const ChoiceValue::Word& row : choice.words()) {
    spellings.emplace_back(row.name);
    spellings.insert(spellings.end(), row.aliases.begin(), row.aliases.end());
  }
  return not_among(setting, given, spellings);
}

std::optional<Refusal> take(const Setting& setting, const Given& given, const ChoiceOrText& value) {
  if (given.text.empty()) return wrong_type(setting, given);
  const auto row = given.quoted ? std::nullopt : row_of(value.choice, lower(given.text));
  const bool is_word = row && value.choice.words()[*row].name != value.free;
  value.choice.set(is_word ? *row : *row_of(value.choice, std::string(value.free)));
  *value.text = is_word ? "" : given.text;
  return std::nullopt;
}

bool means_absent(const Setting& setting, const Given& given) {
  if (given.kind == Given::Kind::null) return true;
  if (given.kind != Given::Kind::scalar || given.quoted) return false;
  const std::string word = lower(given.text);
  return word == "null" || word == "none" || word == "~" || word == setting.rules.absent;
}

}  // namespace

std::optional<Refusal> check_number(std::string_view key, const Rules& rules, double value) {
  if (std::isinf(value)) return Refusal{fmt::format("{} must be finite, not {}", key, value), ""};
  if (std::isfinite(value) && within(rules, value)) return std::nullopt;
  return Refusal{fmt::format("{} must be {}, not {}", key, bounds_text(rules, false), value), ""};
}

std::optional<Refusal> assign(const Setting& setting, const Given& given) {
  return std::visit(
      [&](auto target) -> std::optional<Refusal> {
        using Target = decltype(target);
        using Held = std::remove_pointer_t<Target>;
        using Value = typename Optional<Held>::Inner;
        if constexpr (std::is_same_v<Target, ChoiceValue>) {
          if (target.is_optional() && means_absent(setting, given)) {
            target.reset();
            return std::nullopt;
          }
        }
        if constexpr (Optional<Held>::value) {
          if (means_absent(setting, given)) {
            target->reset();
            return std::nullopt;
          }
        }
        const bool takes_list = std::is_same_v<Value, Pair> || List<Value>::value;
        if (given.kind != Given::Kind::scalar && !(given.kind == Given::Kind::list && takes_list))
          return wrong_type(setting, given);
        if constexpr (std::is_pointer_v<Target>) {
          Value value{};
          if (std::optional<Refusal> refusal = read(setting, given, value)) return refusal;
          *target = value;
          return std::nullopt;
        } else {
          return take(setting, given, target);
        }
      },
      setting.value);
}

}  // namespace trireme::config
