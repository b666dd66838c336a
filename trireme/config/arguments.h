// A command line cut into keys and values: --key value, --key=value, key=value, --flag, one positional value.
// Which keys exist is not known here, except which of them are true/false and may stand without a value.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/config/value.h"

namespace trireme::config {

struct Argument {
  enum class Kind { setting, config, positional, help };
  Kind kind = Kind::setting;
  Given given;             ///< key and text; for config the path is the text
  bool has_value = true;   ///< false: --key stood alone
};

/// `is_flag(key)` says that a setting is true/false: it takes the next argument only when that is such a word.
std::vector<Argument> split_arguments(std::span<const std::string> arguments,
                                      const std::function<bool(const std::string&)>& is_flag);

}  // namespace trireme::config
