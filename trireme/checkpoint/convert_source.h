// Whatever holds a model's weights, opened and brought under Hugging Face's names: what `trireme convert` reads.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/checkpoint/tensor_source.h"

namespace trireme::checkpoint {

struct ConvertInput {
  std::string format;  ///< "safetensors", "gguf", ...
  /// Sources, each reading from the one before; the last has Hugging Face's names and layouts.
  std::vector<std::unique_ptr<TensorSource>> chain;
  std::string config_json;                   ///< "" where the source has none
  std::map<std::string, std::string> files;  ///< tokenizer.json and the like: name -> bytes
  std::vector<std::string> notes;            ///< one line each, for the user

  const TensorSource& tensors() const { return *chain.back(); }
};

/// Recognises `path` by looking into it: a .gguf file, a Hugging Face folder, one of our checkpoints or a folder of
/// them (the newest counts).
///
/// Errors    CheckpointError, UsageError: nothing there that Trireme knows, or something damaged
ConvertInput open_convert_source(const std::filesystem::path& path);

}  // namespace trireme::checkpoint
