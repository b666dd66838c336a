#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/base/text.h"
#include "trireme/config/declaration.h"
#include "trireme/config/report.h"
#include "trireme/config/value.h"

namespace trireme::config {

namespace {

using Json = nlohmann::ordered_json;

// A text as a YAML scalar: plain where nobody can misread it, else in double quotes, whose escapes are JSON's.
std::string quoted(const std::string& text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '/' ||
           c == '.' || c == '-';
  });
  static const std::vector<std::string> kReserved = {"null", "none", "true", "false", "yes", "no", "on", "off", "auto"};
  std::string word = text;
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool reserved = std::find(kReserved.begin(), kReserved.end(), word) != kReserved.end();
  if (plain && !reserved && text[0] != '-' && text[0] != '.') return text;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string yaml_list(const std::vector<std::string>& items) {
  std::vector<std::string> safe;
  for (const std::string& item : items) safe.push_back(quoted(item));
  return fmt::format("[{}]", base::join(safe, ", "));
}

std::string yaml_value(const Setting& setting) {
  if (is_absent(setting)) return value_text(setting);
  if (const auto* names = std::get_if<std::vector<std::string>*>(&setting.value)) return yaml_list(**names);
  if (const auto* names = std::get_if<std::optional<std::vector<std::string>>*>(&setting.value)) {
    return yaml_list(***names);
  }
  const std::string type = type_name(setting);
  if (type == "text") return quoted(value_text(setting));
  if (type == "folder") {
    const Resume& resume = *std::get<Resume*>(setting.value);
    if (resume.from == Resume::From::folder) return quoted(resume.folder);
  }
  return value_text(setting);
}

Json json_value(const Setting& setting) {
  return std::visit(
      [&](auto* value) -> Json {
        using Held = std::remove_pointer_t<decltype(value)>;
        if constexpr (std::is_same_v<Held, std::optional<std::chrono::milliseconds>>) {
          return *value ? Json(static_cast<double>((*value)->count()) / 1000) : Json();
        } else if constexpr (std::is_same_v<Held, std::chrono::milliseconds>) {
          return static_cast<double>(value->count()) / 1000;
        } else if constexpr (std::is_same_v<Held, Resume> || std::is_enum_v<Held>) {
          return value_text(setting);
        } else if constexpr (requires { value->has_value(); }) {
          return *value ? Json(**value) : Json();
        } else {
          return *value;
        }
      },
      setting.value);
}

}  // namespace

std::string to_yaml(const Settings& settings) {
  Settings copy = settings;
  std::string text;
  std::string_view open_group;
  for (const Setting& setting : declare(copy)) {
    const std::string_view group = group_of(setting.key);
    if (group.empty()) {
      text += fmt::format("{}: {}\n", setting.key, yaml_value(setting));
      continue;
    }
    if (group != open_group) text += fmt::format("{}:\n", group);
    open_group = group;
    const std::string_view leaf = setting.key == group ? own_leaf(group) : setting.key.substr(group.size() + 1);
    text += fmt::format("  {}: {}\n", leaf, yaml_value(setting));
  }
  return text;
}

std::string to_json(const Settings& settings) {
  Settings copy = settings;
  Json object = Json::object();
  for (const Setting& setting : declare(copy)) object[std::string(setting.key)] = json_value(setting);
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace trireme::config
