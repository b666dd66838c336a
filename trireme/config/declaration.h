// How settings are declared. A row is one setting, a section is the rows of one owner, and a table joins sections for a
// command. Parsing, hints, help, the reference page, dumps and resuming are loops over a table; this folder knows no
// setting by name. A section is declared beside the code that reads it (trireme/*/settings.h).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "trireme/config/choices.h"
#include "trireme/config/given.h"

namespace trireme::config {

class OtherSystems;
class Problems;

using ValuePointer =
    std::variant<bool*, std::optional<bool>*, int64_t*, std::optional<int64_t>*, double*, std::optional<double>*,
                 std::string*, std::optional<std::string>*, std::chrono::milliseconds*,
                 std::optional<std::chrono::milliseconds>*, std::optional<std::array<double, 2>>*,
                 std::vector<std::string>*, std::optional<std::vector<std::string>>*,
                 std::optional<std::vector<int64_t>>*, ChoiceValue, ChoiceOrText>;

/// What a resumed run does with its checkpoint's value of a setting that the user does not give.
enum class Resumed {
  no,  ///< ignores it; for settings that say where and on how many ranks a run computes
  yes,  ///< takes it over
  learned,  ///< takes it over; another value changes what is learned, so the user is told
};

/// The rules of a value, how it is shown, and more facts about it. Bounds of times are in seconds.
struct Rules {
  std::string_view unit = {};  ///< "sequences", "steps"; shown, not parsed
  std::optional<double> at_least = {};
  std::optional<double> above = {};
  std::optional<double> at_most = {};
  std::optional<double> below = {};
  bool may_be_empty = false;  ///< an empty text is a value
  bool bytes = false;  ///< a whole number that may have a unit: 16MiB
  std::string_view absent = {};  ///< word for an optional without a value: "auto", "none"
  std::string_view when_absent = {};  ///< what this word means: "the model's own"
  std::vector<std::string> classes = {};  ///< the allowed names, for a text or each text of a list; empty: any text
  std::string_view example = {};  ///< for messages, if the default is no example: "my.txt", "3e9"
  std::optional<Resumed> resumed = {};  ///< empty: Section::resumed
  bool ends_run = false;  ///< says when a run ends; if the user gives one of these, a resumed run takes over none
  std::string_view with_path = {};  ///< what a path in this setting's place is given with, for messages
  std::string_view with_records = {};  ///< the same of a file of JSON records
  bool writes_file = false;  ///< the path of an output file: refused early if it cannot be written
  /// One of these begins each result. A file that begins otherwise is not replaced, but for a text (.txt). "": any is.
  std::string_view result_begins = {};
  /// Other systems' words for a value that a choice lacks, in lower case, and the way out.
  std::vector<std::pair<std::string_view, std::string_view>> other_values = {};
};

struct Setting {
  std::string_view key;  ///< "train.micro_batch_size"
  ValuePointer value;
  std::string_view help;  ///< one line, without a full stop
  Rules rules = {};
  std::string here = {};  ///< for `auto`, what it means on this machine: "bf16-mixed"; else empty
};

/// Other systems' words for a setting. They are compared with the last part of an unknown key: learning_rate and
/// train.learning_rate alike. A word that ends in _ stands for all words that begin with it.
struct OtherWords {
  std::vector<std::string_view> words;
  std::string_view sentence;  ///< the way out: "the learning rate is optimizer.lr"
  bool is_not_available = false;  ///< Trireme lacks the feature; false: only the name is wrong
};

/// The settings of one owner: "name.setting", or plain "setting" if the section has no name.
struct Section {
  std::string_view name;  ///< the part of the keys before the dot
  std::string_view title;  ///< for help: "the update rule"
  std::string_view command = {};  ///< the only command that reads these settings: "generate"; empty: several do
  std::string_view own_leaf = {};  ///< "name" if `model: X` means `model.name: X`; empty: the section takes no value
  Resumed resumed = Resumed::no;
  std::vector<Setting> rows;
  std::vector<OtherWords> others = {};
  std::function<void(Problems&)> check = {};  ///< rules between the section's own settings
};

/// Sections for a command, in the order of its help. Rows point into settings that must outlive the table.
class Table {
 public:
  explicit Table(std::vector<Section> sections);

  /// Other systems' names for settings; null: none are known.
  const OtherSystems* others = nullptr;

  const std::vector<Section>& sections() const { return sections_; }
  /// All rows' keys, in order.
  const std::vector<std::string>& keys() const { return keys_; }
  /// The row of `key`, or null.
  const Setting* find(std::string_view key) const { return row(key).second; }
  Setting* find(std::string_view key) { return const_cast<Setting*>(row(key).second); }
  /// The section that holds `key`, or null.
  const Section* section_of(std::string_view key) const { return row(key).first; }
  /// The section of that name, or null.
  const Section* section_named(std::string_view name) const;
  /// The name of the section of `key`, which may be unknown; "" for a key without a section.
  std::string_view group_of(std::string_view key) const;
  /// True if the section of that name takes a value itself.
  bool takes_value(std::string_view name) const;
  /// Whether keys begin with "<key>.".
  bool has_keys_below(std::string_view key) const;
  /// Turns the key into the table's own: model.name becomes "model", recompute.mode "recompute". Other systems' names
  /// too.
  void translate(Given& given) const;
  /// The same for a key alone.
  std::string canonical_key(std::string_view key) const;
  /// What a resumed run does with its checkpoint's value of `key`.
  Resumed resumed(std::string_view key) const;
  /// Calls visit(section, setting) for each row, in order.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const Section& section : sections_)
      for (const Setting& setting : section.rows) visit(section, setting);
  }

 private:
  std::pair<const Section*, const Setting*> row(std::string_view key) const;

  std::vector<Section> sections_;
  std::vector<std::string> keys_;
};

/// The section's name in help: "run" for settings without a section.
std::string_view public_name(const Section& section);

/// "TRIREME_TRAIN_MICRO_BATCH_SIZE": the environment variable that sets `key`.
std::string environment_name(std::string_view key);

}  // namespace trireme::config
