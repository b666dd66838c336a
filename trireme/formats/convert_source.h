// What `trireme convert` reads: weights in any known format, opened and mapped to Hugging Face's names.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/adapt/open_model.h"
#include "trireme/formats/vocabulary.h"
#include "trireme/model/config.h"

namespace trireme::formats {

struct ConvertInput {
  std::string format;  ///< "safetensors", "gguf", ...
  /// Each source reads from the one before; the last has Hugging Face's names and layouts.
  std::vector<std::unique_ptr<TensorSource>> chain;
  std::string config_json;                   ///< "" if the source has none
  /// Not empty: the tensors are an adapter's, under PEFT's names, and config_json is its base's.
  std::string adapter_config_json = {};
  std::map<std::string, std::string> files;  ///< tokenizer.json and the like: name -> bytes
  std::vector<std::string> notes;            ///< one line each, for the user
  bool was_in_blocks = false;  ///< matrices are shown as the values of codes of a few bits; nothing is merged into them

  const TensorSource& tensors() const { return *chain.back(); }
};

/// Recognises the format of `place.model` by its contents: a .gguf file, a Hugging Face folder, a checkpoint of
/// Trireme,
/// ... In a folder of checkpoints, the newest good one is used. An adapter is merged into its base.
///
/// Errors    CheckpointError, UsageError: a damaged source, or no format that Trireme knows
ConvertInput open_convert_source(const adapt::ModelPlace& place);

/// An adapter by itself, not merged; its base only says of which architecture it is.
/// Errors    as open_convert_source()
ConvertInput open_adapter_source(const adapt::ModelPlace& place);

/// generation_config.json of a model that has none: the ids of its own configuration.
std::string generation_config(const nlohmann::json& config);

/// Whether `path` is an adapter's folder, or a folder of checkpoints whose newest good one is.
bool is_adapter(const std::filesystem::path& path);

}  // namespace trireme::formats
