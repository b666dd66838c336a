#include "trireme/config/declaration.h"

#include <algorithm>
#include <utility>

#include "trireme/config/other_systems.h"

namespace trireme::config {

Table::Table(std::vector<Section> sections) : sections_(std::move(sections)) {
  // Settings without a group are one group, "run", wherever they are declared.
  std::ranges::stable_partition(sections_, [](const Section& section) { return section.name.empty(); });
  for_each([this](const Section&, const Setting& setting) { keys_.emplace_back(setting.key); });
}

std::pair<const Section*, const Setting*> Table::row(std::string_view key) const {
  for (const Section& section : sections_)
    for (const Setting& setting : section.rows)
      if (setting.key == key) return {&section, &setting};
  return {nullptr, nullptr};
}

const Section* Table::section_named(std::string_view name) const {
  const auto at = std::find_if(sections_.begin(), sections_.end(), [&](const Section& s) { return s.name == name; });
  return at == sections_.end() ? nullptr : &*at;
}

bool Table::takes_value(std::string_view name) const {
  const Section* section = section_named(name);
  return section != nullptr && !section->own_leaf.empty();
}

std::string_view Table::group_of(std::string_view key) const {
  const std::string_view head = key.substr(0, key.find('.'));
  return head.size() != key.size() || takes_value(head) ? head : std::string_view();
}

bool Table::has_keys_below(std::string_view key) const {
  return std::any_of(keys_.begin(), keys_.end(), [&](const std::string& known) {
    return known.size() > key.size() && known.starts_with(key) && known[key.size()] == '.';
  });
}

void Table::translate(Given& given) const {
  if (others != nullptr) others->rename(given);
  if (std::string plain = given.key; find(plain) == nullptr) {  // --log-dir
    std::replace(plain.begin(), plain.end(), '-', '_');
    if (find(plain) != nullptr) given.key = std::move(plain);
  }
  const size_t dot = given.key.find('.');
  if (dot == std::string::npos) return;
  const std::string_view head = std::string_view(given.key).substr(0, dot);
  if (takes_value(head) && given.key.substr(dot + 1) == section_named(head)->own_leaf) given.key.resize(dot);
}

std::string Table::canonical_key(std::string_view key) const {
  Given given{.key = std::string(key), .source = {}};
  translate(given);
  return given.key;
}

Resumed Table::resumed(std::string_view key) const {
  const auto [section, setting] = row(key);
  return section == nullptr ? Resumed::no : setting->rules.resumed.value_or(section->resumed);
}

std::string_view public_name(const Section& section) { return section.name.empty() ? "run" : section.name; }

std::string environment_name(std::string_view key) {
  std::string name = "TRIREME_";
  for (const char c : key) name += c == '.' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return name;
}

}  // namespace trireme::config
