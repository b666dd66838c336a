// A dialect: what the keys of another system mean here, as a table. A row says what becomes of one key: a setting, or
// that it is ignored and why, or that it is refused and why. Values keep the meaning, and missing keys the default, of
// their own system. Reading a file, `trireme explain config`, docs/dialects.md and the hints are loops over the rows.
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/config/given.h"

namespace trireme::dialects {

class Reading;

/// What values a key takes in its own system. Others are refused, also where the key is ignored.
enum class Takes { anything, flag, count, number, text, numbers };

struct Row {
  using Pairs = std::vector<std::pair<std::string_view, std::string_view>>;

  std::string_view key;  ///< "zero_optimization.stage"; "amp.*": all keys below amp
  Takes takes = Takes::anything;

  // Exactly one of these five.
  std::string_view setting = {};  ///< has the same value here, or the one in `words`
  std::string_view becomes = {};  ///< which settings, and how; by `by`, or by the dialect's `finish`
  std::string_view ignored = {};  ///< why it needs no setting
  std::string_view refused = {};  ///< why it cannot be had
  std::string_view open = {};     ///< what is not built yet

  /// Of a setting: its words for theirs. A word that is not here is taken as it is.
  Pairs words = {};
  /// Of a refused or open key: values that ask for nothing. "false", "0" and "none" always do.
  std::vector<std::string_view> off = {};
  /// Translates the entry, or ignores it only where that is right; see Reading.
  void (*by)(Reading& reading, const config::Given& entry) = nullptr;
  /// Of a setting: rewrites the value further.
  void (*adapt)(config::Given& given) = nullptr;
  /// "auto" is a value: the run's own setting counts, as in transformers.
  std::string_view automatic = {};
};

/// Keys of a dialect that are words: none, those without a dot (--use_fsdp), or all.
enum class Words { none, plain, all };

struct Dialect {
  std::string_view name;    ///< of --config_dialect: "deepspeed"
  std::string_view system;  ///< for messages: "DeepSpeed"
  std::string_view about;   ///< for docs/dialects.md
  /// A file is of this system if it has one of these keys, or a key below one.
  std::vector<std::string_view> marks;
  bool is_json = false;
  /// Which of its keys may stand on a command line and in Trireme's own files, beside Trireme's.
  Words words = Words::none;
  /// Options of a command line that name a file of this system: --deepspeed_config.
  std::vector<std::string_view> file_options = {};
  /// Names of maps that are another's here, or that vanish: {"data.init_args", "data"}.
  Row::Pairs renamed_maps = {};
  /// Keys that are in no row are Trireme's own.
  std::vector<Row> rows;
  bool takes_native_keys = false;
  /// '' is an answer that was left out, as null is.
  bool blank_is_null = false;
  /// Two keys of a file may not give one setting two values; elsewhere a system's own rule says which one counts.
  bool one_value_each = false;
  /// Whether its reader drops this key where it is "auto", so that its default counts.
  bool (*drops_auto)(std::string_view key) = nullptr;
  /// Runs before all entries. If it refuses the file, no entry is read.
  void (*begin)(Reading& reading) = nullptr;
  /// Runs after all entries: what depends on several keys, and defaults.
  void (*finish)(Reading& reading) = nullptr;
};

const Dialect& deepspeed();
const Dialect& accelerate();
const Dialect& litgpt();
const Dialect& free_transformer();
const Dialect& hydra();
const Dialect& torchrun();
const Dialect& trl();

/// The row of `key`, or null.
const Row* find_row(const Dialect& dialect, std::string_view key);

}  // namespace trireme::dialects
