// Small models and adapters with random values, as folders.
#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <map>
#include <string>

#include "trireme/adapt/adapter_config.h"
#include "trireme/model/config.h"

namespace trireme::adapt {

using Tensors = std::map<std::string, at::Tensor>;

model::ModelConfig small_model(model::Architecture architecture, int64_t blocks = 3);

/// Writes one safetensors file of float tensors.
void write_safetensors(const std::filesystem::path& path, const Tensors& tensors);

/// Random weights of a model in `dtype`, with its config.json. Returns them.
Tensors write_model(const std::filesystem::path& folder, const model::ModelConfig& model,
                    at::ScalarType dtype = at::kFloat);

/// A random adapter of a model, as PEFT writes it. Returns its tensors without PEFT's prefix.
Tensors write_adapter(const std::filesystem::path& folder, const AdapterConfig& config,
                      const model::ModelConfig& model);

}  // namespace trireme::adapt
