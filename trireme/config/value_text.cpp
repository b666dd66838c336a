#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/config/value.h"
#include "trireme/config/value_types.h"

namespace trireme::config {
namespace {

std::string written(const Rules&, bool value) { return value ? "true" : "false"; }
std::string written(const Rules& rules, int64_t value) {
  return rules.bytes ? base::format_bytes(value) : fmt::format("{}", value);
}
std::string written(const Rules&, double value) { return base::format_number(value); }
std::string written(const Rules&, const std::string& value) { return value; }
std::string written(const Rules&, Milliseconds value) { return base::format_duration(value); }
std::string written(const Rules&, const Pair& value) {
  return fmt::format("[{}, {}]", base::format_number(value[0]), base::format_number(value[1]));
}
// As JSON where an item would not be read as it is without quotes.
std::string written(const Rules&, const std::vector<std::string>& value) {
  const bool plain = std::ranges::all_of(value, [](const std::string& item) {
    return !item.empty() && item.front() != ' ' && item.back() != ' ' &&
           item.find_first_of(",\"'\\[](){}\n\r\t#:") == std::string::npos;
  });
  if (plain) return fmt::format("[{}]", base::join(value, ", "));
  return base::json_text(nlohmann::json(value));
}
std::string written(const Rules&, const std::vector<int64_t>& value) {
  std::vector<std::string> items;
  for (const int64_t number : value) items.push_back(fmt::format("{}", number));
  return fmt::format("[{}]", base::join(items, ", "));
}

std::string_view word_of(const ChoiceValue& choice) { return choice.words()[choice.row().value_or(0)].name; }

std::vector<std::string> available(const ChoiceValue& choice) {
  std::vector<std::string> names;
  for (const ChoiceValue::Word& word : choice.words())
    if (word.available) names.emplace_back(word.name);
  return names;
}

}  // namespace

std::string bounds_text(const Rules& rules, bool seconds) {
  std::vector<std::string> parts;
  auto add = [&](std::string_view words, const std::optional<double>& bound) {
    if (!bound) return;
    const bool count = *bound >= 1000 && *bound < 1e15 && *bound == std::floor(*bound);
    const std::string number = count ? base::human_count(static_cast<int64_t>(*bound)) : base::format_number(*bound);
    parts.push_back(fmt::format("{} {}{}", words, number, seconds ? "s" : ""));
  };
  add("at least", rules.at_least);
  add("above", rules.above);
  add("at most", rules.at_most);
  add("below", rules.below);
  return base::join(parts, " and ");
}

std::string value_text(const Setting& setting) {
  return std::visit(
      [&](auto value) -> std::string {
        using Target = decltype(value);
        if constexpr (std::is_same_v<Target, ChoiceValue>) {
          return std::string(value.row() ? word_of(value) : setting.rules.absent);
        } else if constexpr (std::is_same_v<Target, ChoiceOrText>) {
          return word_of(value.choice) == value.free ? *value.text : std::string(word_of(value.choice));
        } else if constexpr (Optional<std::remove_pointer_t<Target>>::value) {
          return *value ? written(setting.rules, **value) : std::string(setting.rules.absent);
        } else {
          return written(setting.rules, *value);
        }
      },
      setting.value);
}

bool is_absent(const Setting& setting) {
  return std::visit(
      [&](auto value) {
        using Target = decltype(value);
        if constexpr (std::is_same_v<Target, ChoiceValue>) {
          return !value.row() || word_of(value) == setting.rules.absent;
        } else if constexpr (Optional<std::remove_pointer_t<Target>>::value) {
          return !value->has_value();
        } else {
          return false;
        }
      },
      setting.value);
}

std::string type_name(const Setting& setting) {
  return visit_type(setting, [&](auto* type) -> std::string {
    using Value = std::remove_pointer_t<decltype(type)>;
    if constexpr (std::is_same_v<Value, bool>) return "true or false";
    if constexpr (std::is_same_v<Value, int64_t>) return setting.rules.bytes ? "size" : "whole number";
    if constexpr (std::is_same_v<Value, double>) return "number";
    if constexpr (std::is_same_v<Value, std::string>) return setting.rules.classes.empty() ? "text" : "name";
    if constexpr (std::is_same_v<Value, Milliseconds>) return "time";
    if constexpr (std::is_same_v<Value, Pair>) return "two numbers";
    if constexpr (std::is_same_v<Value, std::vector<std::string>>) return "list of names";
    if constexpr (std::is_same_v<Value, std::vector<int64_t>>) return "list of whole numbers";
    if constexpr (std::is_same_v<Value, ChoiceOrText>) return "choice or text";
    return "choice";
  });
}

std::string allowed_text(const Setting& setting) {
  if (!setting.rules.classes.empty()) return one_of(setting.rules.classes);
  if (const auto* choice = std::get_if<ChoiceValue>(&setting.value)) return one_of(available(*choice));
  if (const auto* value = std::get_if<ChoiceOrText>(&setting.value)) {
    std::vector<std::string> names = available(value->choice);
    std::erase(names, value->free);
    names.push_back(fmt::format("a {}", value->free));
    return one_of(names);
  }
  return visit_type(setting, [&](auto* type) -> std::string {
    using Value = std::remove_pointer_t<decltype(type)>;
    const std::string text = bounds_text(setting.rules, std::is_same_v<Value, Milliseconds>);
    if (Optional<Value>::value || setting.rules.absent.empty()) return text;
    return text.empty() ? text : fmt::format("{}, or {}", text, setting.rules.absent);
  });
}

std::string alias_text(const Setting& setting) {
  const auto* choice = std::get_if<ChoiceValue>(&setting.value);
  if (choice == nullptr) return "";
  std::vector<std::string> parts;
  for (const ChoiceValue::Word& word : choice->words()) {
    if (!word.available || word.aliases.empty()) continue;
    const std::vector<std::string> aliases(word.aliases.begin(), word.aliases.end());
    parts.push_back(fmt::format("{} for {}", base::join(aliases, ", "), word.name));
  }
  return base::join(parts, "; ");
}

std::string example_text(const Setting& setting) {
  if (!setting.rules.example.empty()) return std::string(setting.rules.example);
  if (!setting.rules.classes.empty()) return setting.rules.classes.front();
  const auto* choice = std::get_if<ChoiceValue>(&setting.value);
  if (choice != nullptr && is_absent(setting))
    for (const std::string& name : available(*choice))
      if (name != setting.rules.absent) return name;
  return type_name(setting) == "true or false" ? "true" : value_text(setting);
}

std::string one_of(const std::vector<std::string>& words) {
  if (words.size() < 2) return base::join(words, "");
  return base::join(std::span(words).first(words.size() - 1), ", ") + " or " + words.back();
}

}  // namespace trireme::config
