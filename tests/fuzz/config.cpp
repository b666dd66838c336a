#include <string>

#include "targets.h"
#include "trireme/model/config.h"

namespace trireme::fuzz {

/// A config.json; what is accepted can be written and read again as the same model.
void fuzz_config(std::string_view bytes) {
  const model::ModelConfig config = model::parse_hugging_face_config(std::string(bytes), "config.json");
  const std::string written = config.to_hugging_face_json("float32");
  require(model::parse_hugging_face_config(written, "written").same_model(config),
          "a config is written as it was read");
}

}  // namespace trireme::fuzz
