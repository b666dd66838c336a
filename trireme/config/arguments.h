// Cuts a command line into keys and values: --key value, --key=value, key=value, --flag, one positional value. It does
// not know which keys exist. It only knows which keys are true/false and so may have no value.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/config/value.h"

namespace trireme::config {

struct Argument {
  enum class Kind { setting, config, config_dialect, positional, help };
  Kind kind = Kind::setting;
  Given given;            ///< key and text; for config the text is the path, for config_dialect a name
  bool has_value = true;  ///< false: --key without a value
};

/// Whether the text is a value of a true/false setting: true, off, null, ... in any case.
bool is_truth_word(std::string text);

/// `is_flag(key)` says whether the setting is true/false. Such a setting takes the next argument only if that is a word
/// like true. With `takes_rest`, everything is positional from the first argument that is no option, or after --.
std::vector<Argument> split_arguments(std::span<const std::string> arguments,
                                      const std::function<bool(const std::string&)>& is_flag, bool takes_rest = false);

}  // namespace trireme::config
