// Hints for unknown keys: what a section says about other systems' words, the nearest right spelling, and features that
// are known but not built. Environment variables that look like settings but are none get hints too. Otherwise a
// misspelled TRIREME_TRAIN_MICRO_BATCHSIZE=4 would be ignored silently.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/declaration.h"

namespace trireme::config {

/// A way out for an unknown key, never empty: "the learning rate is optimizer.lr", "the nearest is train.max_steps".
/// `command` is the one that reads the key; its --help, or that of what it plans, lists what could be meant. `reads`
/// tells which settings it takes; empty: all.
std::string hint_for(const Table& table, std::string_view unknown_key, std::string_view command = "COMMAND",
                     const std::function<bool(const std::string& key)>& reads = {});

/// Why a key of another system's feature is refused; empty for all other keys.
std::optional<std::string> refusal_of(const Table& table, std::string_view key);

/// A variable that begins like a group of settings, or is nearly a setting's name.
struct StrayVariable {
  std::string name;
  std::string hint;  ///< the nearest right name, or what else to do
};

/// The stray variables among `names`. Ignores launchers' and Kubernetes' variables, and names that resemble no setting.
std::vector<StrayVariable> stray_variables(const Table& table, std::span<const std::string> names);

/// Names of this process's variables that begin with TRIREME_, in order.
std::vector<std::string> own_variables();

}  // namespace trireme::config
