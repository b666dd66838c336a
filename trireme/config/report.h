// Writes a table as text for people and files: help, the reference page, values and their sources, YAML, JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/parse.h"

namespace trireme::config {

/// What --help prints: for each setting its type, unit, default, allowed values and a line of explanation. `words`
/// selects groups ("train", "model", ... and "run" for settings without a section) and keys of single settings; empty:
/// all. The settings of the command's Overlay::section are shown with their short names too. Defaults are the values of
/// `table` (set_defaults), and what Overlay::shown_defaults says.
/// Errors    UsageError for a word that is neither
std::string help_text(const Table& table, const std::vector<std::string>& words = {}, const Overlay& overlay = {});

/// A heading and a table for each section, in Markdown.
std::string reference_tables(const Table& table);

/// One line per setting: key, value, source. `trireme explain config` prints it.
std::string explain(const Table& table, const Parsed& parsed);

/// Every setting as a YAML tree that `--config` reads back to equal values; with `parsed` only those that are given.
std::string to_yaml(const Table& table, const Parsed* parsed = nullptr);

/// Every setting as a JSON object with dotted keys. Times are seconds, sizes are bytes, settings not given are null.
std::string to_json(const Table& table);

}  // namespace trireme::config
