#include <string>

#include "targets.h"
#include "trireme/config/yaml_file.h"

namespace trireme::fuzz {

/// A YAML file of settings, up to their keys and values as text.
void fuzz_settings_yaml(std::string_view bytes) {
  config::Problems problems;
  const auto found = config::read_yaml(std::string(bytes), "fuzz.yaml", problems);
  for (const config::Given& given : found) require(!given.key.empty(), "a setting has a key");
  problems.throw_if_any();
}

}  // namespace trireme::fuzz
