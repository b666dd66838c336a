// The words of a setting with a fixed set of values. Beside the setting's enum stands
//
//     std::span<const config::Choice<Strategy>> choices_of(Strategy);
//
// Argument-dependent lookup finds it. Values that are not built yet have rows too, and are refused by name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace trireme::config {

template <typename Enum>
struct Choice {
  Enum value;
  std::string_view name;                  ///< as Trireme writes it
  std::vector<std::string_view> aliases;  ///< other systems' words for the same thing
  bool available = true;                       ///< false: known, but not built yet
};

/// "full_shard", "bf16-mixed", ...: the word that settings use.
template <typename Enum>
std::string_view name_of(Enum value) {
  for (const Choice<Enum>& choice : choices_of(value))
    if (choice.value == value) return choice.name;
  return "?";
}

/// Points to a value of any such enum, or optional enum, and knows its words. So one table holds all enums.
class ChoiceValue {
 public:
  struct Word {
    std::string_view name;
    std::vector<std::string_view> aliases;
    bool available;
  };

  template <typename Enum>
    requires std::is_enum_v<Enum>
  ChoiceValue(Enum* value) : place_(value), type_(&type_of<Enum, Enum>()) {}
  template <typename Enum>
    requires std::is_enum_v<Enum>
  ChoiceValue(std::optional<Enum>* value) : place_(value), type_(&type_of<Enum, std::optional<Enum>>()) {}

  const void* place() const { return place_; }
  std::span<const Word> words() const { return type_->words; }
  bool is_optional() const { return type_->is_optional; }
  /// The value's index in words(); nothing for an empty optional.
  std::optional<size_t> row() const { return type_->row(place_); }
  void set(size_t row) const { type_->set(place_, row); }
  /// Empties an optional value.
  void reset() const { type_->reset(place_); }

 private:
  struct Type {
    std::vector<Word> words;
    bool is_optional;
    std::optional<size_t> (*row)(const void* place);
    void (*set)(void* place, size_t row);
    void (*reset)(void* place);
  };

  template <typename Enum, typename Held>
  static const Type& type_of() {
    static const Type kType = [] {
      Type type{.words = {},
                .is_optional = !std::is_same_v<Enum, Held>,
                .row = [](const void* place) -> std::optional<size_t> {
                  const std::optional<Enum> value = *static_cast<const Held*>(place);
                  const std::span<const Choice<Enum>> all = choices_of(Enum{});
                  const auto at =
                      std::find_if(all.begin(), all.end(), [&](const auto& choice) { return choice.value == value; });
                  return at == all.end() ? std::nullopt : std::optional<size_t>(at - all.begin());
                },
                .set = [](void* place, size_t row) { *static_cast<Held*>(place) = choices_of(Enum{})[row].value; },
                .reset = [](void* place) { *static_cast<Held*>(place) = Held{}; }};
      for (const Choice<Enum>& choice : choices_of(Enum{}))
        type.words.push_back({choice.name, choice.aliases, choice.available});
      return type;
    }();
    return kType;
  }

  void* place_;
  const Type* type_;
};

/// A choice with one row for any other text. `text` stores that text: `resume: true | auto | FOLDER`.
struct ChoiceOrText {
  ChoiceValue choice;
  std::string* text;
  std::string_view free;  ///< name of that row, and help's word for the text: "folder"
};

}  // namespace trireme::config
