// A YAML file of settings, flattened to dotted keys, each with its line. LitGPT's `class_path` and `init_args`
// are understood; what keys mean is parse.cpp's business.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/config/problems.h"
#include "trireme/config/value.h"

namespace trireme::config {

/// The file's settings in its own order. What is wrong with the file itself (missing, not YAML, a key twice)
/// goes to `problems`, with file:line and the line's text.
std::vector<Given> read_yaml_file(const std::filesystem::path& path, Problems& problems);

/// The same of a file that has been read; `name` is for messages.
std::vector<Given> read_yaml(std::string contents, const std::string& name, Problems& problems);

}  // namespace trireme::config
