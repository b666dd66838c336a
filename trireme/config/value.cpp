#include "trireme/config/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/config/choices.h"

namespace trireme::config {

namespace {

template <typename T>
struct Optional : std::false_type {
  using Inner = T;
};
template <typename T>
struct Optional<std::optional<T>> : std::true_type {
  using Inner = T;
};

using Pair = std::array<double, 2>;
using Milliseconds = std::chrono::milliseconds;

// Calls `visitor` with a null pointer of the setting's type, optional stripped.
template <typename Visitor>
auto visit_type(const Setting& setting, Visitor visitor) {
  return std::visit(
      [&](auto* value) {
        using Held = std::remove_pointer_t<decltype(value)>;
        return visitor(static_cast<typename Optional<Held>::Inner*>(nullptr));
      },
      setting.value);
}

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

// What the setting wants, with its article, for "<key> wants <this>".
std::string wanted(const Setting& setting) {
  const std::string type = type_name(setting);
  if (type == "choice") return allowed_text(setting);
  if (type == "name") return one_of(setting.rules.classes);
  if (type == "folder") return "false, true, auto or a folder";
  if (type == "size") return "a size such as 512MiB or 5GB";
  if (type == "time") return "a time such as 30s, 10m or 1h30m";
  const bool plural = type == "true or false" || type == "two numbers" || type == "text";
  std::string text = plural ? type : "a " + type;
  if (!setting.rules.absent.empty()) text += fmt::format(" or {}", setting.rules.absent);
  return text;
}

Refusal wrong_type(const Setting& setting, const Given& given) {
  return {fmt::format("{} wants {}, not {}", setting.key, wanted(setting), shown(given)), ""};
}

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

bool within(const Rules& rules, double value) {
  return !(rules.at_least && value < *rules.at_least) && !(rules.above && value <= *rules.above) &&
         !(rules.at_most && value > *rules.at_most) && !(rules.below && value >= *rules.below);
}

std::optional<Refusal> check_bounds(const Setting& setting, const Given& given, double value, bool seconds = false) {
  if (!within(setting.rules, value)) {
    return Refusal{fmt::format("{} must be {}, not {}", setting.key, bounds_text(setting.rules, seconds), given.text),
                   ""};
  }
  if (!setting.rules.only_one.empty() && value > 1) {
    return Refusal{fmt::format("{} {}: {} is not built yet", setting.key, given.text, setting.rules.only_one),
                   "mesh.replicate and mesh.shard are the axes that may exceed 1"};
  }
  return std::nullopt;
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
  if (!number) return wrong_type(setting, given);
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
    out = given.text;
    return std::nullopt;
  }
  // LitGPT writes a class with its module: litgpt.data.TextFiles, torch.optim.AdamW.
  const std::string name = given.text.substr(given.text.rfind('.') + 1);
  for (const std::string& known : setting.rules.classes) {
    if (lower(known) == lower(name)) {
      out = known;
      return std::nullopt;
    }
  }
  return Refusal{fmt::format("{} {} does not exist here", setting.key, given.text),
                 fmt::format("{} is {}", setting.key, one_of(setting.rules.classes))};
}

std::optional<Refusal> read(const Setting& setting, const Given& given, Milliseconds& out) {
  const std::optional<Milliseconds> time = base::parse_duration(given.text);
  if (!time) return wrong_type(setting, given);
  out = *time;
  return check_bounds(setting, given, static_cast<double>(out.count()) / 1000, true);
}

std::optional<Refusal> read(const Setting& setting, const Given& given, Pair& out) {
  std::vector<std::string> items = given.items;
  if (given.kind == Given::Kind::scalar) {  // the command line: [0.9,0.95], (0.9, 0.95) or 0.9,0.95
    std::string text = given.text;
    std::erase_if(text, [](char c) { return c == '[' || c == ']' || c == '(' || c == ')' || c == ' '; });
    for (size_t start = 0; start <= text.size();) {
      const size_t end = std::min(text.find(',', start), text.size());
      items.push_back(text.substr(start, end - start));
      start = end + 1;
    }
  }
  if (items.size() != out.size()) return wrong_type(setting, given);
  for (size_t i = 0; i < out.size(); ++i) {
    const std::optional<double> number = base::parse_number(items[i]);
    if (!number) return wrong_type(setting, given);
    out[i] = *number;
    if (std::optional<Refusal> refusal = check_bounds(setting, given, out[i])) return refusal;
  }
  return std::nullopt;
}

std::optional<Refusal> read(const Setting& setting, const Given& given, Resume& out) {
  const std::string word = lower(given.text);
  if (given.text.empty()) return wrong_type(setting, given);
  if (!given.quoted && (word == "false" || word == "no" || word == "off")) {
    out = {};
  } else if (!given.quoted && (word == "true" || word == "yes" || word == "on")) {
    out = {Resume::From::newest, ""};
  } else if (!given.quoted && word == "auto") {
    out = {Resume::From::newest_if_any, ""};
  } else {
    out = {Resume::From::folder, given.text};
  }
  return std::nullopt;
}

template <typename Enum>
  requires std::is_enum_v<Enum>
std::optional<Refusal> read(const Setting& setting, const Given& given, Enum& out) {
  const std::string word = lower(given.text);
  std::vector<std::string> spellings;
  for (const Choice<Enum>& choice : choices_of(Enum{})) {
    const bool alias = std::find(choice.aliases.begin(), choice.aliases.end(), word) != choice.aliases.end();
    if (word == choice.name || alias) {
      if (!choice.available) {
        const std::string also = alias ? fmt::format(" ({})", choice.name) : "";
        return Refusal{fmt::format("{} {}{} is not built yet", setting.key, given.text, also),
                       fmt::format("{} can be {}", setting.key, allowed_text(setting))};
      }
      out = choice.value;
      return std::nullopt;
    }
    spellings.emplace_back(choice.name);
    spellings.insert(spellings.end(), choice.aliases.begin(), choice.aliases.end());
  }
  Refusal refusal = wrong_type(setting, given);
  if (const std::optional<std::string> near = base::nearest(word, spellings)) {
    refusal.hint = fmt::format("the nearest is {}", *near);
  }
  return refusal;
}

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
std::string written(const Rules&, const Resume& value) {
  switch (value.from) {
    case Resume::From::nothing:
      return "false";
    case Resume::From::newest:
      return "true";
    case Resume::From::newest_if_any:
      return "auto";
    case Resume::From::folder:
      break;
  }
  return value.folder;
}
template <typename Enum>
  requires std::is_enum_v<Enum>
std::string written(const Rules&, Enum value) {
  return std::string(name_of(value));
}

bool means_absent(const Setting& setting, const Given& given) {
  if (given.kind == Given::Kind::null) return true;
  if (given.kind != Given::Kind::scalar || given.quoted) return false;
  const std::string word = lower(given.text);
  return word == "null" || word == "none" || word == "~" || word == setting.rules.absent;
}

}  // namespace

std::optional<Refusal> assign(const Setting& setting, const Given& given) {
  return std::visit(
      [&](auto* target) -> std::optional<Refusal> {
        using Held = std::remove_pointer_t<decltype(target)>;
        using Value = typename Optional<Held>::Inner;
        if constexpr (Optional<Held>::value) {
          if (means_absent(setting, given)) {
            target->reset();
            return std::nullopt;
          }
        }
        const bool takes_list = std::is_same_v<Value, Pair>;
        if (given.kind != Given::Kind::scalar && !(given.kind == Given::Kind::list && takes_list)) {
          return wrong_type(setting, given);
        }
        Value value{};
        if (std::optional<Refusal> refusal = read(setting, given, value)) return refusal;
        *target = value;
        return std::nullopt;
      },
      setting.value);
}

std::string value_text(const Setting& setting) {
  return std::visit(
      [&](auto* value) -> std::string {
        if constexpr (Optional<std::remove_pointer_t<decltype(value)>>::value) {
          return *value ? written(setting.rules, **value) : std::string(setting.rules.absent);
        } else {
          return written(setting.rules, *value);
        }
      },
      setting.value);
}

bool is_absent(const Setting& setting) {
  return std::visit(
      [](auto* value) {
        if constexpr (Optional<std::remove_pointer_t<decltype(value)>>::value) {
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
    if constexpr (std::is_same_v<Value, Resume>) return "folder";
    return "choice";
  });
}

std::string allowed_text(const Setting& setting) {
  if (!setting.rules.classes.empty()) return one_of(setting.rules.classes);
  return visit_type(setting, [&](auto* type) -> std::string {
    using Value = std::remove_pointer_t<decltype(type)>;
    if constexpr (std::is_enum_v<Value>) {
      std::vector<std::string> names;
      for (const Choice<Value>& choice : choices_of(Value{})) {
        if (choice.available) names.emplace_back(choice.name);
      }
      return one_of(names);
    } else if constexpr (std::is_same_v<Value, Resume>) {
      return "false, true, auto or a folder";
    } else {
      std::string text = bounds_text(setting.rules, std::is_same_v<Value, Milliseconds>);
      if (!setting.rules.only_one.empty()) text = "1 so far";
      if (Optional<Value>::value || setting.rules.absent.empty()) return text;
      return text.empty() ? text : fmt::format("{}, or {}", text, setting.rules.absent);
    }
  });
}

std::string alias_text(const Setting& setting) {
  return visit_type(setting, [&](auto* type) -> std::string {
    using Value = std::remove_pointer_t<decltype(type)>;
    std::vector<std::string> parts;
    if constexpr (std::is_enum_v<Value>) {
      for (const Choice<Value>& choice : choices_of(Value{})) {
        if (!choice.available || choice.aliases.empty()) continue;
        const std::vector<std::string> aliases(choice.aliases.begin(), choice.aliases.end());
        parts.push_back(fmt::format("{} for {}", base::join(aliases, ", "), choice.name));
      }
    }
    return base::join(parts, "; ");
  });
}

std::string one_of(const std::vector<std::string>& words) {
  if (words.size() < 2) return base::join(words, "");
  return base::join(std::span(words).first(words.size() - 1), ", ") + " or " + words.back();
}

}  // namespace trireme::config
