// Other systems' words and files of settings, as this folder sees them: an interface, which trireme/dialects fills in.
// A word that only has another name here is renamed where it is read. A file of another system is read as a whole,
// after the command line, because what its keys mean depends on each other and on the number of ranks. Of several, each
// is read twice: once to know what it will set, and once to count.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/given.h"

namespace trireme::config {

class Problems;
class Table;
struct Parsed;

/// What became of one key of another system. Keys that are refused are problems and have no account.
struct Account {
  Source source;
  std::string key;  ///< the other system's: "zero_optimization.stage"
  bool is_ignored;  ///< it has no effect here; `text` says why
  std::string text;  ///< "strategy shard_grad_op", or why it is ignored
};

/// Another system's file, or its words on the command line.
struct ForeignFile {
  static constexpr std::string_view kCommandLine = "the command line";
  using Later = std::map<std::string, std::optional<std::string>, std::less<>>;

  std::string dialect;  ///< "deepspeed"
  std::string name;  ///< for messages: its path, or kCommandLine
  std::vector<Given> entries;
  std::vector<std::string> others = {};  ///< paths of files that it names and that `entries` hold
  Later later = {};  ///< settings that count more, by their keys: of later files and the command line; nothing: absent
};

/// What such a file asks for.
struct ForeignSettings {
  std::vector<Given> settings;
  std::vector<Given> defaults;  ///< the other system's defaults where they differ; anything that is given comes first
  std::vector<Account> accounts;
  std::vector<std::string> files = {};  ///< paths of other files that were read for it
};

class OtherSystems {
 public:
  virtual ~OtherSystems() = default;

  /// Rewrites a key that has another name here, and another system's word for a value. Leaves all others unchanged. If
  /// the value is a map in a file, only the key is translated.
  virtual void rename(Given& given) const = 0;

  /// The dialect that knows this word of a command line, which is more than another name; empty: none.
  virtual std::string_view dialect_of(std::string_view word) const = 0;

  /// Whether such a word is true or false, so that it may stand without a value.
  virtual bool is_flag(std::string_view word) const = 0;

  /// The dialect of an option whose value is a file of settings (--deepspeed_config ds.json); empty: no such option.
  virtual std::string_view dialect_of_file_option(std::string_view word) const = 0;

  /// What becomes of a key of another system's files, in a sentence; empty: no system has it.
  virtual std::string hint_of(std::string_view key) const = 0;

  /// The file as another system's; nothing if it is Trireme's own. `dialect` names the system, empty: its content does.
  /// `problems` gets mistakes of the file itself, and a dialect that does not exist.
  virtual std::optional<ForeignFile> recognise(const std::string& contents, const std::string& path,
                                               const std::string& dialect, Problems& problems) const = 0;

  /// Translates a file. `table` and `parsed` hold what has been read so far. `command` is the subcommand's name.
  virtual ForeignSettings read(const ForeignFile& file, const Table& table, const Parsed& parsed,
                               std::string_view command, Problems& problems) const = 0;
};

}  // namespace trireme::config
