// A PEFT folder: adapter_config.json and adapter_model.safetensors; a checkpoint of a run that trains adapters is one
// too, with a manifest and the state of the optimizer beside it. Of the base model it has the path, or also the files,
// as they were, in the same folder.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "trireme/adapt/adapter_config.h"
#include "trireme/adapt/resolve.h"
#include "trireme/checkpoint/load.h"
#include "trireme/checkpoint/naming.h"

namespace trireme::adapt {

inline constexpr const char* kAdapterModelName = "adapter_model.safetensors";

struct AdapterFolder {
  std::filesystem::path path;
  AdapterConfig config;
  checkpoint::Checkpoint files;  ///< its tensors have the file's names
  std::string base_path;  ///< as recorded: the checkpoint's own record, else base_model_name_or_path; "": none
  std::string base_fingerprint;  ///< base_fingerprint.h; "": none is recorded
  bool holds_base = false;       ///< the folder has a copy of the base too (checkpoint.base copy)
};

/// Whether `folder` holds an adapter_config.json.
bool is_adapter_folder(const std::filesystem::path& folder);

/// The message where an adapter's folder is wanted and a file is named.
std::string no_adapters_file(const std::filesystem::path& file);

/// Whether `folder` is one that has a copy of its base too.
bool holds_base(const std::filesystem::path& folder);

/// Opens a base's folder: a model's, or an adapter's that holds its base, of which the base alone is opened.
/// Errors    CheckpointError as open_checkpoint(); a folder of an adapter alone
checkpoint::Checkpoint open_base(const std::filesystem::path& folder);

/// Opens `folder`, or the newest good checkpoint in it.
/// Errors    CheckpointError as open_checkpoint() and parse_adapter_config(); no adapter_model.safetensors
AdapterFolder open_adapter_folder(const std::filesystem::path& folder);

/// How `files` of an adapter name the tensor that adapter_tensors() calls `ours`, behind PEFT's prefix. PEFT trains a
/// vision model as a whole, and names its text half so.
checkpoint::Naming naming_in(const checkpoint::Checkpoint& files, const std::string& ours);

/// An adapter that fits a model.
struct FittedAdapter {
  model::Adapters adapters;
  std::map<std::string, std::string> file_names;  ///< of each tensor of adapter_tensors()
  /// Copies of the base's own tensors, which PEFT saves beside adapters of an embedding or a head: the file's name ->
  /// the base's ("model.embed_tokens.weight").
  std::map<std::string, std::string> base_copies;
};

/// Checks that the folder holds exactly the tensors that its configuration asks of `model`, in their shapes.
/// Errors    UsageError as resolve(); CheckpointError: an adapter of another base, with the first tensor that differs
FittedAdapter fit(const AdapterFolder& folder, const model::ModelConfig& model);

}  // namespace trireme::adapt
