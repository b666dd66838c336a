// Reads a JSON file of settings (DeepSpeed's) as dotted keys, each with its line. Comments (# // /* */) and a comma
// behind the last entry are read over, as DeepSpeed's reader (Hjson) does. Its words without quotes are refused here.
#pragma once

#include <string>
#include <vector>

#include "trireme/config/given.h"
#include "trireme/config/problems.h"

namespace trireme::config {

/// As read_yaml_tree. Numbers keep the text that they have in the file: 5e8.
/// Cost      the text is read three times: for its comments, for its depth, and as JSON
std::vector<Given> read_json_tree(std::string contents, const std::string& name, Problems& problems);

}  // namespace trireme::config
