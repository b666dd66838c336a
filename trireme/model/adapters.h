// Adapters: which modules of a model get low-rank adapters (LoRA), and which are trained whole beside them. Everything
// else of such a model is frozen. A module is named as in Hugging Face's files, without ".weight":
// "model.layers.0.self_attn.q_proj".
//
//   y = W x + b + scale * B(A(dropout(x)))          A [rank, in], B [out, rank]
//
// Source: Hu et al., LoRA (2021); Kalajdzievski, rsLoRA (2023); Liu et al., DoRA (2024)
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "trireme/model/settings.h"

namespace trireme::model {

struct AdapterSpec {
  int64_t rank = 8;
  double scale = 1;    ///< alpha / rank; rsLoRA: alpha / sqrt(rank)
  double dropout = 0;  ///< of the adapter's input
  bool dora = false;   ///< a trained magnitude for each output row
  bool bias = false;   ///< B has a bias (lora_bias)
  AdapterInit init = AdapterInit::kaiming;
  double rate_of_b = 1;  ///< the learning rate of B is this many times that of A (LoRA+)
  bool operator==(const AdapterSpec&) const = default;
};

struct Adapters {
  std::map<std::string, AdapterSpec> modules;  ///< by the module's name
  std::set<std::string> whole;                 ///< modules whose own parameters are trained (modules_to_save)
  bool empty() const { return modules.empty() && whole.empty(); }
  bool operator==(const Adapters&) const = default;
};

// Names of an adapter's parameters, after the module's name. PEFT's files put "base_model.model." before them.
inline constexpr const char* kLoraA = ".lora_A.weight";
inline constexpr const char* kLoraB = ".lora_B.weight";
inline constexpr const char* kLoraBiasB = ".lora_B.bias";
inline constexpr const char* kLoraMagnitude = ".lora_magnitude_vector";
inline constexpr const char* kLoraEmbeddingA = ".lora_embedding_A";  ///< [rank, vocabulary]
inline constexpr const char* kLoraEmbeddingB = ".lora_embedding_B";  ///< [width, rank]
inline constexpr const char* kPeftPrefix = "base_model.model.";

}  // namespace trireme::model
