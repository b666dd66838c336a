// Reads a command line into the values that a table points to: defaults, then the environment, then the arguments from
// left to right, with each --config FILE at its place. The last value of a key wins. A file of another system
// (other_systems.h) counts at its place too, but less than any setting on the command line. What its keys mean may
// depend on those, and on files that follow. All mistakes are collected and refused at once, before any process starts
// and without LibTorch (milliseconds).
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/config/declaration.h"
#include "trireme/config/other_systems.h"

namespace trireme::config {

struct Parsed;

/// How a subcommand reads settings.
struct Overlay {
  std::vector<std::pair<std::string, std::string>> values;  ///< the subcommand's own defaults: {"devices", "2"}
  std::string command;  ///< its name, for messages: "pretrain"
  std::string positional = "model";  ///< key of the one argument without a name; empty: there is none
  std::string second;  ///< the key that a second argument without a name was probably meant for, for messages
  bool reads_its_section_alone = false;  ///< other settings on the command line are refused
  std::vector<std::string_view> unread_groups;  ///< those that only training reads: refused on the command line
  std::vector<std::string_view> unread_keys;  ///< likewise, of groups of which the command reads others
  std::vector<std::string_view> read_keys;  ///< keys of these groups that the command reads
  bool takes_list = false;  ///< any number of arguments without a name go to Parsed::list
  bool passes_over_mistakes = false;  ///< what is right counts, and nothing is refused
  bool takes_rest = false;  ///< all arguments from the first one without a name, or after --, go to Parsed::list
  /// What help says in place of a default that only other commands have: {"data.tokenizer", "it must be given"}.
  std::vector<std::pair<std::string, std::string>> shown_defaults;
  std::string section;  ///< keys may be given without this prefix: "generate" allows --prompt
  std::vector<Section> own;  ///< the command's own options: on the command line only, not in the environment
  /// Values of `own` that count less than what was typed, which they may depend on: another program's variables.
  std::function<std::vector<Given>(const Parsed& typed)> inherited;
  const OtherSystems* others = nullptr;  ///< other systems' words and files that are understood; null: none
  std::function<const char*(const char*)> environment;  ///< looks up a variable; empty: the process's own
  std::vector<std::string> variables;  ///< names of all variables, if `environment` is given
};

/// Gives the settings of `table` the subcommand's own defaults.
void set_defaults(const Overlay& overlay, const Table& table);

/// Where a table's values came from.
struct Parsed {
  std::map<std::string, Source> provenance;  ///< every key
  bool help = false;  ///< --help or -h was given
  std::vector<std::string> list = {};  ///< arguments without a name, if the command takes a list
  std::vector<std::string> files = {};  ///< paths of the files of settings that were read, and of those they name
  std::vector<Account> accounts = {};  ///< every key of other systems' files, and words of theirs, in order

  /// True if the user set `key` in any way. A value from a resumed run's checkpoint does not count.
  bool given(const std::string& key) const;

  /// True if `key` stood on the command line. A file or the environment may hold the settings of several commands;
  /// typed settings are meant for this one.
  bool typed(const std::string& key) const;
};

/// `arguments` is everything after the subcommand: --key value, --key=value, key=value, --config FILE,
/// --config_dialect NAME for files whose content does not show their system, and one positional value. A true/false
/// setting alone means true: --launch.pin. Errors    UsageError with one "error: ..." paragraph for each mistake
Parsed parse(std::span<const std::string> arguments, const Overlay& overlay, const Table& table = Table({}));

}  // namespace trireme::config
