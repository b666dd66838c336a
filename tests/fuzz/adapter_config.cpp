#include "trireme/adapt/adapter_config.h"
#include "targets.h"

namespace trireme::fuzz {

/// PEFT's adapter_config.json; what is accepted can be written and read again as the same.
void fuzz_adapter_config(std::string_view bytes) {
  const adapt::AdapterConfig config = adapt::parse_adapter_config(bytes, "adapter_config.json");
  const std::string written = adapt::adapter_config_json(config);
  require(adapt::parse_adapter_config(written, "written") == config, "an adapter's config is written as it was read");
}

}  // namespace trireme::fuzz
