// Whether the tensors of a source are all of a model's, under the names that Hugging Face gives them.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "trireme/formats/vocabulary.h"
#include "trireme/model/config.h"

namespace trireme::formats {

/// What a program that wrapped the model put before the names of all tensors: "module." (DDP), "_orig_mod."
/// (torch.compile), "model." (Lightning). Empty if the names are the model's without it, or not with it either.
std::string wrapper_prefix(const model::ModelConfig& config, std::span<const TensorSpec> tensors);

/// Checks that every parameter of the model exists, under Hugging Face's name and with its shape. Without this check, a
/// file that lacks its last norm, or one file of several, would become another model without any error. `path` is for
/// messages. `may_vary`: a folder's names may begin otherwise (checkpoint::Naming), and it may lack the head. A tensor
/// that the model does not have is refused, as training refuses it.
/// Errors    CheckpointError naming the first wrong parameter and the number of wrong ones, or the tensor
void check_model_tensors(const model::ModelConfig& config, std::span<const TensorSpec> tensors, const std::string& path,
                         bool may_vary = false);

/// The model that config.json describes; nothing if there is none, or no model that can be built of so many tensors.
std::optional<model::ModelConfig> known_model(const std::string& config_json, int64_t num_tensors);

/// The same check of a folder with safetensors, if its config.json describes a model. Codes of fewer bits are not
/// looked at.
void check_model_folder(const std::filesystem::path& folder);

}  // namespace trireme::formats
