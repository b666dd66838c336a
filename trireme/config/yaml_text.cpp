#include <fmt/format.h>
#include <yaml-cpp/binary.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/config/report.h"
#include "trireme/config/value.h"

namespace trireme::config {
namespace {

using Json = nlohmann::ordered_json;

// A text as a YAML scalar: plain if it cannot be misread, else in double quotes with JSON's escapes. A path may have
// bytes that are no UTF-8, for which YAML has base64.
std::string yaml_quoted(const std::string& text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '/' ||
           c == '.' || c == '-';
  });
  static const std::vector<std::string> kReserved = {"null", "none", "true", "false", "yes", "no", "on", "off", "auto"};
  std::string word = text;
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool reserved = std::find(kReserved.begin(), kReserved.end(), word) != kReserved.end();
  if (plain && !reserved && text[0] != '-' && text[0] != '.') return text;
  try {
    return Json(text).dump();
  } catch (const Json::type_error&) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    return fmt::format("!!binary \"{}\"", YAML::EncodeBase64(bytes, text.size()));
  }
}

std::string yaml_list(const std::vector<std::string>& items) {
  std::vector<std::string> safe;
  for (const std::string& item : items) safe.push_back(yaml_quoted(item));
  return fmt::format("[{}]", base::join(safe, ", "));
}

std::string yaml_value(const Setting& setting) {
  if (is_absent(setting)) return value_text(setting);
  if (const auto* names = std::get_if<std::vector<std::string>*>(&setting.value)) return yaml_list(**names);
  if (const auto* names = std::get_if<std::optional<std::vector<std::string>>*>(&setting.value))
    return yaml_list(***names);
  const std::string type = type_name(setting);
  if (type == "text") return yaml_quoted(value_text(setting));
  if (const auto* value = std::get_if<ChoiceOrText>(&setting.value); value != nullptr && !value->text->empty())
    return yaml_quoted(*value->text);
  return value_text(setting);
}

Json json_value(const Setting& setting) {
  return std::visit(
      [&](auto value) -> Json {
        using Held = std::remove_pointer_t<decltype(value)>;
        if constexpr (std::is_same_v<Held, std::optional<std::chrono::milliseconds>>) {
          return *value ? Json(static_cast<double>((*value)->count()) / 1000) : Json();
        } else if constexpr (std::is_same_v<Held, std::chrono::milliseconds>) {
          return static_cast<double>(value->count()) / 1000;
        } else if constexpr (std::is_same_v<Held, ChoiceOrText>) {
          return value_text(setting);
        } else if constexpr (std::is_same_v<Held, ChoiceValue>) {
          return value.row() ? Json(value_text(setting)) : Json();
        } else if constexpr (requires { value->has_value(); }) {
          return *value ? Json(**value) : Json();
        } else {
          return *value;
        }
      },
      setting.value);
}

}  // namespace

std::string to_yaml(const Table& table, const Parsed* parsed) {
  std::string text;
  std::string_view open;
  table.for_each([&](const Section& section, const Setting& setting) {
    if (parsed != nullptr && !parsed->given(std::string(setting.key))) return;
    if (section.name.empty()) {
      text += fmt::format("{}: {}\n", setting.key, yaml_value(setting));
      return;
    }
    if (section.name != open) text += fmt::format("{}:\n", section.name);
    open = section.name;
    const bool is_own = setting.key == section.name;
    text += fmt::format("  {}: {}\n", is_own ? section.own_leaf : setting.key.substr(section.name.size() + 1),
                        yaml_value(setting));
  });
  return text;
}

std::string to_json(const Table& table) {
  Json object = Json::object();
  table.for_each(
      [&](const Section&, const Setting& setting) { object[std::string(setting.key)] = json_value(setting); });
  return base::json_text(object, 2) + "\n";
}

}  // namespace trireme::config
