// The one declaration of every setting: its key, where its value lies, what it means, its unit and its
// bounds. Parsing, help, the reference page, dumps and `explain config` are loops over this table; a new
// setting is one field in settings.h and one row in declaration.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/config/settings.h"

namespace trireme::config {

using ValuePointer =
    std::variant<bool*, std::optional<bool>*, int64_t*, std::optional<int64_t>*, double*, std::optional<double>*,
                 std::string*, std::optional<std::string>*, std::chrono::milliseconds*,
                 std::optional<std::chrono::milliseconds>*, std::optional<std::array<double, 2>>*, Resume*, Precision*,
                 Accelerator*, Strategy*, Backend*, Reduce*, Accumulation*, Recompute*, Context*, PrefetchBackward*,
                 WrapBy*, LrScaling*, Compression*, LrDecay*, SaveDtype*, SaveMode*, OnSaveError*,
                 std::vector<std::string>*, std::optional<std::vector<std::string>>*,
                 std::optional<std::vector<int64_t>>*>;

/// What a value must obey and how it is shown; times are bounded in seconds.
struct Rules {
  std::string_view unit = {};             ///< "sequences", "steps"; shown, not parsed
  std::optional<double> at_least = {};
  std::optional<double> above = {};
  std::optional<double> at_most = {};
  std::optional<double> below = {};
  bool may_be_empty = false;              ///< a text that says something by being empty
  bool bytes = false;                     ///< a whole number that may carry a unit: 16MiB
  std::string_view absent = {};           ///< word for an empty optional: "auto", "none"
  std::string_view when_absent = {};      ///< what that means: "the model's own"
  std::vector<std::string> classes = {};  ///< names that a text, or each text of a list, may be; others are free
};

struct Setting {
  std::string_view key;  ///< "train.micro_batch_size"
  ValuePointer value;
  std::string_view help;  ///< one line, without a full stop
  Rules rules = {};
};

/// A group of settings for help and the reference page: the part of the key before the dot ("" for the first).
struct Group {
  std::string_view name;
  std::string_view title;
  std::string_view command = {};  ///< the only one that reads them: "generate"; empty: several do
};

const std::vector<Group>& groups();

/// The table for `settings`, in the order of the groups; its rows point into `settings`, which must outlive them.
std::vector<Setting> declare(Settings& settings);

/// Group of a key. "model", "data", "optimizer" and "recompute" take a value and belong to their own groups.
std::string_view group_of(std::string_view key);

/// Name inside its group of the value that a group's own key takes: "name" of model, "mode" of recompute; "" where
/// the group's key takes no value.
std::string_view own_leaf(std::string_view group);

/// All keys, in order.
const std::vector<std::string>& all_keys();

/// The row of `key`, or null.
const Setting* find(const std::vector<Setting>& table, std::string_view key);

/// The key that other spellings of it stand for: model.name is "model", recompute.mode "recompute"; LitGPT's
/// data.class_path is "data", its data.init_args.train_data_path "data.train_data_path" (optimizer likewise).
std::string canonical_key(std::string_view key);

/// "TRIREME_TRAIN_MICRO_BATCH_SIZE": the environment variable that sets `key`.
std::string environment_name(std::string_view key);

}  // namespace trireme::config
