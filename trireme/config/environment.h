// Variables of the environment that look like settings and are none: TRIREME_TRAIN_MICRO_BATCHSIZE=4 would be passed
// over without a word, since a variable counts only where a setting asks for it by name.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::config {

/// A variable that begins like a group of settings, or is nearly the name of one.
struct StrayVariable {
  std::string name;
  std::string hint;  ///< the nearest right name, or what else to do
};

/// Those among `names`. What launchers tell ranks and Kubernetes tells pods is left alone, as is anything whose name
/// resembles no setting.
std::vector<StrayVariable> stray_variables(std::span<const std::string> names);

/// Names of this process's variables that begin with TRIREME_, in order.
std::vector<std::string> own_variables();

}  // namespace trireme::config
