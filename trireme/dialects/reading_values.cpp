// What a Reading knows: values of its entries, and Trireme's settings as far as they are decided.
#include <algorithm>
#include <cctype>

#include "trireme/base/units.h"
#include "trireme/config/value.h"
#include "trireme/dialects/reading.h"

namespace trireme::dialects {

using config::Given;

namespace {

constexpr int64_t kMostRanks = 1'000'000;  // more are refused later; products with them fit

bool names(const config::ChoiceValue::Word& word, std::string_view text) {
  const std::string wanted = lower(text);
  return lower(word.name) == wanted ||
         std::ranges::any_of(word.aliases, [&](std::string_view alias) { return lower(alias) == wanted; });
}

// As Trireme writes it: cosine for cosine_with_min_lr.
std::string written(const config::Setting& setting, const std::string& text) {
  const auto* choice = std::get_if<config::ChoiceValue>(&setting.value);
  if (choice == nullptr) return text;
  for (const config::ChoiceValue::Word& word : choice->words())
    if (names(word, text)) return std::string(word.name);
  return text;
}

}  // namespace

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

bool is_auto(const Given& entry) { return entry.text == "auto"; }

bool is_flag_text(const Given& entry) {
  const std::string word = lower(entry.text);
  return word == "true" || word == "false" || word == "yes" || word == "no";
}

const Given* Reading::find(std::string_view key) const {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return nullptr;
  const Given& entry = *found->second;
  const bool has_value = entry.kind == Given::Kind::scalar || entry.kind == Given::Kind::list;
  if (is_left_out(entry)) return nullptr;
  return has_value && !is_auto(entry) ? &entry : nullptr;
}

bool Reading::is_left_out(const Given& entry) const {
  return dialect_.blank_is_null && entry.kind == Given::Kind::scalar && entry.text.empty();
}

bool Reading::is_left(std::string_view key) const {
  const auto found = entries_.find(key);
  return found != entries_.end() && is_auto(*found->second);
}

std::optional<double> Reading::number(std::string_view key) const {
  const Given* entry = find(key);
  return entry == nullptr ? std::nullopt : base::parse_number(entry->text);
}

std::optional<int64_t> Reading::count(std::string_view key) const {
  const Given* entry = find(key);
  return entry == nullptr ? std::nullopt : base::parse_count(entry->text);
}

bool Reading::flag(std::string_view key, bool otherwise) const {
  const Given* entry = find(key);
  if (entry == nullptr || !is_flag_text(*entry)) return otherwise;
  const std::string word = lower(entry->text);
  return word == "true" || word == "yes";
}

std::string Reading::text(std::string_view key, std::string_view otherwise) const {
  const Given* entry = find(key);
  return entry == nullptr ? std::string(otherwise) : entry->text;
}

bool Reading::is_given(std::string_view setting) const {
  return parsed_.given(std::string(setting)) ||
         std::ranges::any_of(result_.settings, [&](const Given& given) { return given.key == setting; });
}

bool Reading::is_typed_as(std::string_view setting, std::string_view name) const {
  const auto found = parsed_.provenance.find(std::string(setting));
  return found != parsed_.provenance.end() && found->second.kind == config::Source::Kind::command_line &&
         found->second.text.find(name) != std::string::npos;
}

std::optional<std::string> Reading::known(std::string_view setting) const {
  const config::Setting* row = table_.find(setting);
  if (row == nullptr) return std::nullopt;
  if (const auto counts_more = file_.later.find(setting); counts_more != file_.later.end())
    return counts_more->second ? std::optional(written(*row, *counts_more->second)) : std::nullopt;
  const auto here = [&](const std::vector<Given>& list) -> const Given* {
    const auto found = std::find_if(list.rbegin(), list.rend(), [&](const Given& g) { return g.key == setting; });
    return found == list.rend() ? nullptr : &*found;
  };
  const Given* given = here(result_.settings);
  if (given == nullptr && !parsed_.given(std::string(setting))) given = here(result_.defaults);
  if (given != nullptr) return written(*row, given->text);
  if (config::is_absent(*row)) return std::nullopt;
  return config::value_text(*row);
}

std::optional<int64_t> Reading::known_count(std::string_view setting) const {
  const auto text = known(setting);
  return text ? base::parse_count(*text) : std::nullopt;
}

bool Reading::can(std::string_view setting, std::string_view word) const {
  const config::Setting* row = table_.find(setting);
  if (row == nullptr) return false;
  const auto* choice = std::get_if<config::ChoiceValue>(&row->value);
  if (choice == nullptr) return true;
  return std::ranges::any_of(choice->words(), [&](const auto& one) { return one.available && names(one, word); });
}

int64_t Reading::world_size() const { return std::clamp<int64_t>(surroundings_.world_size(*this), 1, kMostRanks); }

int64_t Reading::data_ranks() const {
  int64_t together = 1;
  for (const std::string_view axis : {"mesh.tp", "mesh.pp", "mesh.cp"})
    together *= std::clamp<int64_t>(known_count(axis).value_or(1), 1, 100'000);
  return std::max<int64_t>(world_size() / together, 1);
}

}  // namespace trireme::dialects
