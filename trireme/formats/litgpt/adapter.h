// LitGPT's adapters, lit_model.pth.lora, as PEFT's. LitGPT stores A of q, k and v one below the other, as it stores the
// matrices; the rank and the scale stand in hyperparameters.yaml.
// Source: LitGPT's lora.py (LoRAQKVLinear) and scripts/merge_lora.py.
#pragma once

#include <string>
#include <vector>

#include "trireme/adapt/adapter_config.h"
#include "trireme/formats/tensor_map.h"
#include "trireme/model/config.h"

namespace trireme::formats {

constexpr const char* kLitAdapterName = "lit_model.pth.lora";

struct LitAdapter {
  adapt::AdapterConfig config;
  std::vector<MappedTensor> map;  ///< to the names of adapt::adapter_tensors()
};

/// `hyperparameters` is the text of hyperparameters.yaml, `source` its path for messages. `config` is not tied.
///
/// Errors    UsageError: a file that is not YAML, a key that is missing or has another type; CheckpointError: a tensor
///           that no adapter of this model has
LitAdapter litgpt_adapter(const std::vector<TensorSpec>& tensors, const model::ModelConfig& config,
                          const std::string& hyperparameters, const std::string& source);

}  // namespace trireme::formats
