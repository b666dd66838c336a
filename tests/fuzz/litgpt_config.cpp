#include <string>

#include "targets.h"
#include "trireme/base/error.h"
#include "trireme/formats/litgpt/config.h"

namespace trireme::fuzz {

/// A model_config.yaml; what is accepted can be written as config.json.
void fuzz_litgpt_config(std::string_view bytes) {
  const model::ModelConfig config = formats::parse_litgpt_config(std::string(bytes), "model_config.yaml");
  const std::string written = config.to_hugging_face_json("float32");
  require(!written.empty(), "a config has a config.json");
}

}  // namespace trireme::fuzz
