// What `trireme convert` reads: weights in any known format, opened and mapped to Hugging Face's names.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/formats/vocabulary.h"
#include "trireme/model/config.h"

namespace trireme::formats {

struct ConvertInput {
  std::string format;  ///< "safetensors", "gguf", ...
  /// Each source reads from the one before; the last has Hugging Face's names and layouts.
  std::vector<std::unique_ptr<TensorSource>> chain;
  std::string config_json;                   ///< "" if the source has none
  std::map<std::string, std::string> files;  ///< tokenizer.json and the like: name -> bytes
  std::vector<std::string> notes;            ///< one line each, for the user

  const TensorSource& tensors() const { return *chain.back(); }
};

/// Recognises the format of `path` by its contents: a .gguf file, a Hugging Face folder, a checkpoint of Trireme, ...
/// In a folder of checkpoints, the newest good one is used.
///
/// Errors    CheckpointError, UsageError: a damaged source, or no format that Trireme knows
ConvertInput open_convert_source(const std::filesystem::path& path);

/// Checks that every parameter of the model exists, under Hugging Face's name and with its shape. Without this check, a
/// file that lacks its last norm, or one file of several, would become another model without any error. `path` is for
/// messages.
/// Errors    CheckpointError naming the first wrong parameter and the number of wrong ones
void check_model_tensors(const model::ModelConfig& config, std::span<const TensorSpec> tensors,
                         const std::string& path);

}  // namespace trireme::formats
