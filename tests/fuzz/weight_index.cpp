#include <string>

#include "targets.h"
#include "trireme/checkpoint/layout.h"

namespace trireme::fuzz {

/// model.safetensors.index.json or pytorch_model.bin.index.json.
void fuzz_weight_index(std::string_view bytes) {
  for (const auto& [tensor, file] : checkpoint::parse_weight_index(std::string(bytes), "index.json")) {
    require_inside_folder(file);
  }
}

}  // namespace trireme::fuzz
