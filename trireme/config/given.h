// A value as the user gave it (in a file, in the environment or on the command line), its place, and why it is refused.
#pragma once

#include <string>
#include <vector>

namespace trireme::config {

/// Where a value came from.
struct Source {
  enum class Kind { built_in, command, checkpoint, environment, file, command_line };
  Kind kind = Kind::built_in;
  std::string place;  ///< "default", "default of generate", "checkpoint out/a/step-00000100", "environment",
                      ///< "configs/austen.yaml:14", "command line"
  std::string text;  ///< the text there: "learnig_rate: 2e-3", "--devices 2"; empty for defaults
};

struct Given {
  enum class Kind { scalar, list, null, section };  ///< section: a YAML map in place of a value
  std::string key;
  Kind kind = Kind::scalar;
  std::string text;  ///< the scalar; of a list all of its text, for messages
  std::vector<std::string> items;  ///< of a list
  bool quoted = false;  ///< the value stood in quotes: "null" is then a text
  Source source;
};

/// Why a value is refused ("train.max_steps wants a whole number, not 'many'"), and a way out (may be empty).
struct Refusal {
  std::string headline;
  std::string hint;
};

}  // namespace trireme::config
