// One file of another system while it is read: its entries, and what becomes of them. Functions of rows and a dialect's
// `finish` use this. Each entry ends as an account or as a problem.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/declaration.h"
#include "trireme/config/other_systems.h"
#include "trireme/config/parse.h"
#include "trireme/config/problems.h"
#include "trireme/dialects/dialect.h"

namespace trireme::dialects {

class Reading;

/// What dialects ask the program.
struct Surroundings {
  /// The number of ranks that will start with the settings known to `reading`. A launcher may know better than they.
  std::function<int64_t(const Reading& reading)> world_size;
  /// "2026-11-27/21-50-00": when the run begins, as folders have it; "" if this process does not begin one, or not
  /// alone.
  std::function<std::string(const Reading& reading)> run_begins = {};
  /// Whether a launcher started this process as one of its ranks.
  std::function<bool()> was_launched = {};
};

class Reading {
 public:
  Reading(const Dialect& dialect, const config::ForeignFile& file, const config::Table& table,
          const config::Parsed& parsed, std::string_view command, const Surroundings& surroundings,
          config::Problems& problems);

  config::ForeignSettings run();

  /// The entry of a key that has a value; null if it is missing, null or "auto".
  const config::Given* find(std::string_view key) const;
  /// Whether the file has the key at all, also as null or "auto".
  bool has(std::string_view key) const { return entries_.contains(key); }
  /// Whether the key is there as "auto": the run's own setting counts, and no default of the other system.
  bool is_left(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<int64_t> count(std::string_view key) const;
  bool flag(std::string_view key, bool otherwise = false) const;
  std::string text(std::string_view key, std::string_view otherwise = {}) const;

  /// Sets a setting from `entry`, and says so in its account.
  void set(std::string_view setting, std::string_view value, const config::Given& entry);
  /// A default of the other system.
  void suggest(std::string_view setting, std::string_view value);
  void ignore(const config::Given& entry, std::string_view because);
  /// Takes back the setting that `entry` has set, and its account: other keys say that it does not count, or not yet.
  void take_back(const config::Given& entry, std::string_view setting);
  /// An entry that counts, but sets nothing by itself.
  void tell(const config::Given& entry, std::string_view what);
  /// Ignores every entry that has no account yet.
  void ignore_rest(std::string_view because);
  void refuse(const config::Given& entry, std::string_view headline, std::string_view hint);
  /// Refused because it is not built yet.
  void refuse_open(const config::Given& entry, std::string_view what);
  /// Refuses the file for what it lacks, with its first line.
  void refuse_file(std::string_view headline, std::string_view hint);
  /// Refuses two entries that contradict each other.
  void refuse_both(const config::Given& one, const config::Given& other, std::string_view headline,
                   std::string_view hint);

  /// The value of one of Trireme's settings as far as it is known. The command line counts most, then a later file,
  /// then this one, then what stands so far. Nothing if that is absent. Of a choice it is the name, not an alias.
  std::optional<std::string> known(std::string_view setting) const;
  std::optional<int64_t> known_count(std::string_view setting) const;
  /// Whether the user, or this file, gave it.
  bool is_given(std::string_view setting) const;
  /// Whether the command line gave it.
  bool is_typed(std::string_view setting) const { return parsed_.typed(std::string(setting)); }
  /// Whether a later file or the command line gives it, which counts more than this file.
  bool counts_more(std::string_view setting) const { return file_.later.contains(setting); }
  /// Whether the command line gave it by this other name, which is replaced where it is read.
  bool is_typed_as(std::string_view setting, std::string_view name) const;
  /// Whether the setting takes this word: false for a choice that is not built yet.
  bool can(std::string_view setting, std::string_view word) const;

  config::Problems& problems() { return problems_; }

  int64_t world_size() const;
  /// As Surroundings::run_begins.
  std::string run_begins() const { return surroundings_.run_begins ? surroundings_.run_begins(*this) : ""; }
  bool was_launched() const { return surroundings_.was_launched && surroundings_.was_launched(); }
  /// Ranks that read different sequences: world_size() / (tp x pp x cp).
  int64_t data_ranks() const;
  std::string_view command() const { return command_; }
  /// False for words of a command line.
  bool is_file() const { return file_.name != config::ForeignFile::kCommandLine; }
  /// Whether the entry has an account already, or is refused.
  bool is_settled(const config::Given& entry) const {
    return accounts_.contains(&entry) || is_refused_.contains(&entry);
  }
  const Dialect& dialect() const { return dialect_; }

  /// The file `path` that `entry` names, to include as `dialect`; nothing, and a refusal of the entry, if it cannot be
  /// read.
  std::optional<config::ForeignFile> named_file(const Dialect& dialect, const std::string& path,
                                                const config::Given& entry);
  /// Reads another file as another dialect, in place of this one's keys.
  void include(const Dialect& dialect, const config::ForeignFile& file);
  /// Drops the defaults of included files, of all settings but these.
  void forget_defaults_but(std::initializer_list<std::string_view> settings);

 private:
  void translate(const config::Given& entry);
  void refuse_settings_given_twice();
  bool is_empty_in_file(const config::Given& entry) const;
  bool is_left_out(const config::Given& entry) const;
  void keep(const config::Given& given, const config::Given& entry);
  bool has_right_type(const Row& row, const config::Given& entry);
  bool is_told_of(std::string_view map, const config::Given& entry);
  void refuse_unknown(const config::Given& entry);
  void account(const config::Given& entry, bool is_ignored, std::string_view text);

  const Dialect& dialect_;
  const config::ForeignFile& file_;
  const config::Table& table_;
  const config::Parsed& parsed_;
  std::string_view command_;
  const Surroundings& surroundings_;
  config::Problems& problems_;
  std::map<std::string, const config::Given*, std::less<>> entries_;
  std::map<const config::Given*, config::Account> accounts_;
  std::map<const config::Given*, bool> is_refused_;
  config::ForeignSettings result_;
  std::vector<std::string> around_ = {};  ///< files that include this one
};

/// "FSDP" for "fsdp" and the like: texts are compared without regard to case.
std::string lower(std::string_view text);
bool is_auto(const config::Given& entry);
/// "true", "yes", "false" or "no".
bool is_flag_text(const config::Given& entry);

}  // namespace trireme::dialects
