// All dialects as config::OtherSystems: which system a file is of, and the words of a command line.
#pragma once

#include <span>
#include <string>

#include "trireme/config/other_systems.h"
#include "trireme/dialects/reading.h"

namespace trireme::dialects {

/// In the order in which a word is looked up.
std::span<const Dialect* const> all_dialects();

class Systems : public config::OtherSystems {
 public:
  explicit Systems(Surroundings surroundings, std::span<const Dialect* const> dialects = all_dialects());

  void rename(config::Given& given) const override;
  std::string_view dialect_of(std::string_view word) const override;
  bool is_flag(std::string_view word) const override;
  std::string_view dialect_of_file_option(std::string_view word) const override;
  std::string hint_of(std::string_view key) const override;
  std::optional<config::ForeignFile> recognise(const std::string& contents, const std::string& path,
                                               const std::string& dialect, config::Problems& problems) const override;
  config::ForeignSettings read(const config::ForeignFile& file, const config::Table& table,
                               const config::Parsed& parsed, std::string_view command,
                               config::Problems& problems) const override;

 private:
  const Dialect* named(std::string_view name) const;

  Surroundings surroundings_;
  std::vector<const Dialect*> dialects_;
};

/// What became of each key, for `trireme explain config`; empty without accounts.
std::string explain(const std::vector<config::Account>& accounts);

/// All of docs/dialects.md.
std::string dialects_markdown();

}  // namespace trireme::dialects
