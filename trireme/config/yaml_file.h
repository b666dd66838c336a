// Reads a YAML file of settings as dotted keys, each with its line. The table knows which keys have keys below them,
// and it knows other systems' names. parse.cpp reads the values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/declaration.h"
#include "trireme/config/problems.h"

namespace trireme::config {

/// The settings in a file's contents, in their order. Mistakes of the file itself (not YAML, a key twice) go to
/// `problems`, with file:line and the line's text. `name` is for messages.
std::vector<Given> read_yaml(std::string contents, const std::string& name, const Table& table, Problems& problems);

/// The same for a file of another system: keys as they stand there, every map a map of keys. An empty map is a value of
/// kind section.
std::vector<Given> read_yaml_tree(std::string contents, const std::string& name, Problems& problems);

/// The contents of a file of settings; nothing, and a problem, if it cannot be read. `sources` are the lines that name
/// the file, and `hint` says what it has to be.
std::optional<std::string> read_settings_file(
    const std::filesystem::path& path, Problems& problems, const std::vector<Source>& sources = {},
    std::string_view hint = "--config takes the path of a YAML file of settings, for instance configs/austen.yaml");

/// Limits for YAML from strangers, checked before it becomes a tree. A few hundred bytes of aliases to aliases can mean
/// a billion values, and a tree takes a hundred bytes for each.
struct YamlLimits {
  int64_t values = 20'000;  ///< scalars, lists and maps; an alias counts as all the values that it stands for
  int64_t bytes = int64_t{1} << 20;
};

/// The number of documents in `text`, counted up to 2.
///
/// Memory    a few copies of `text`
/// Errors    YAML::Exception with the place: not YAML, beyond the limits, an alias inside of its own value
int count_yaml_documents(const std::string& text, const YamlLimits& limits = {});

/// The same YAML for yaml-cpp, which loses line breaks that are all of a quoted text: '\n\n', as PyYAML writes one.
/// Lines keep their numbers.
std::string keep_quoted_breaks(std::string_view yaml);

}  // namespace trireme::config
