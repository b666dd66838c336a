#include <string>

#include "targets.h"
#include "trireme/config/yaml_file.h"
#include "trireme/dialects/systems.h"
#include "trireme/settings/settings.h"

namespace trireme::fuzz {

/// A YAML file of settings, up to their keys and values as text.
void fuzz_settings_yaml(std::string_view bytes) {
  static Settings settings;
  static config::Table table = declare(settings);
  static const dialects::Systems others({.world_size = [](const dialects::Reading&) { return int64_t{1}; }});
  table.others = &others;
  config::Problems problems;
  const auto found = config::read_yaml(std::string(bytes), "fuzz.yaml", table, problems);
  for (const config::Given& given : found) require(!given.key.empty(), "a setting has a key");
  problems.throw_if_any();
}

}  // namespace trireme::fuzz
