// How Hydra composes a run from files: a file in the folder of a group (conf/optimizer/adamw.yaml) has its keys below
// the group's name, and a list `defaults` names files of groups. Files are composed key by key before they are read,
// because what keys mean depends on each other. Only files that lie beside the list are read; a search path is not
// known here. Source: hydra.cc/docs/advanced/defaults_list and overriding_packages.
#pragma once

#include <string>
#include <vector>

#include "trireme/config/given.h"
#include "trireme/config/problems.h"

namespace trireme::dialects {

/// Whether a file lies in the folder of one of agent-tunix' groups and has that group's keys.
bool is_of_hydra_group(const std::vector<config::Given>& entries, const std::string& contents, const std::string& path);

/// The entries of a file with the name of its group, and with those of the files that its `defaults` names. Of a key
/// that several files give, the last one in Hydra's order is kept. `others` gets the paths of these files.
std::vector<config::Given> composed_by_hydra(std::vector<config::Given> entries, const std::string& contents,
                                             const std::string& path, std::vector<std::string>& others,
                                             config::Problems& problems);

}  // namespace trireme::dialects
