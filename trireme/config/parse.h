// From a command line to Settings: defaults, then the environment, then the arguments from left to right, a
// --config FILE read where it stands; what comes later wins. Everything wrong is collected and refused
// at once, before any process is started or LibTorch is touched (milliseconds).
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/config/settings.h"

namespace trireme::config {

/// Where a value came from.
struct Source {
  enum class Kind { built_in, command, checkpoint, environment, file, command_line };
  Kind kind = Kind::built_in;
  std::string place;  ///< "default", "default of generate", "checkpoint out/a/step-00000100", "environment",
                      ///< "configs/austen.yaml:14", "command line"
  std::string text;   ///< what stood there: "learnig_rate: 2e-3", "--devices 2"; empty for defaults
};

/// What a subcommand brings along.
struct Overlay {
  std::vector<std::pair<std::string, std::string>> values;  ///< its own defaults: {"devices", "2"}
  std::string command;              ///< its name, for messages: "pretrain"
  std::string positional = "model"; ///< key of the one argument without a name; empty: there is none
  std::string second;               ///< key that a second one was probably meant for, for messages
  bool reads_its_section_alone = false;  ///< other settings on the command line are refused
  bool takes_list = false;          ///< any number of arguments without a name: ParsedSettings::list
  std::string section;              ///< keys may be given without this prefix: "generate" makes --prompt work
  std::function<const char*(const char*)> environment;  ///< looks up a variable; empty: the process's own
  std::vector<std::string> variables;  ///< names that are set, where `environment` is given
};

struct ParsedSettings {
  Settings settings;
  std::map<std::string, Source> provenance;  ///< every key
  bool help = false;                         ///< --help or -h stood among the arguments
  std::vector<std::string> list = {};        ///< arguments without a name, where the command takes a list

  /// True when the user set `key`, in any way; not where a resumed run's checkpoint says it.
  bool given(const std::string& key) const;
};

/// `arguments` is everything after the subcommand: --key value, --key=value, key=value, --config FILE, and one
/// positional value. A true/false setting may stand without its value: --launch.pin.
/// Errors    UsageError with one "error: ..." paragraph for each thing that is wrong
ParsedSettings parse(std::span<const std::string> arguments, const Overlay& overlay = {});

}  // namespace trireme::config
