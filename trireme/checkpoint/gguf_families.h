// Architectures that GGUF and Hugging Face share: names, and which key of one is which of the other.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::checkpoint {

struct GgufConfigRow {
  std::string_view gguf;          ///< below "{arch}."
  std::string_view hugging_face;  ///< in config.json
  bool whole = true;
};

struct GgufFamily {
  std::string_view architecture;             ///< GGUF's: "gemma3"
  std::vector<std::string_view> model_types; ///< config.json's; the first is written
  std::string_view class_name;               ///< "Gemma3ForCausalLM"
  std::string_view activation;
  std::vector<GgufConfigRow> rows;
  bool gemma = false;
  bool gpt2 = false;
};

std::span<const GgufFamily> gguf_families();

/// Errors    CheckpointError with the list where there is no such architecture; `path` is for the message
const GgufFamily& gguf_family(std::string_view architecture, const std::string& path);

}  // namespace trireme::checkpoint
