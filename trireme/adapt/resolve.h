// From PEFT's words to a model's modules: which modules a configuration names, and each one's rank and scale.
//
// A list entry fits a module whose name is the entry or ends in it after a dot; a regular expression has to fit the
// whole name. Names are those of Hugging Face's files without ".weight". A text half is also known by the names that
// the whole vision model has for it. Source: peft, tuners/tuners_utils.py: check_target_module_exists, utils/other.py:
// get_pattern_key
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/adapt/adapter_config.h"
#include "trireme/model/adapters.h"
#include "trireme/model/config.h"

namespace trireme::adapt {

/// A module of a model that PEFT could name.
struct Module {
  enum class Kind {
    linear,     ///< weight [out, in], or [in, out] in GPT-2's files
    embedding,  ///< weight [rows, width]
    norm,
  };
  std::string name;  ///< "model.layers.0.self_attn.q_proj"
  Kind kind = Kind::linear;
  int64_t in = 0, out = 0;       ///< of a linear module; an embedding: rows and width
  std::string weight;  ///< "model.layers.0.self_attn.q_proj.weight"; a tied head: the embedding's
  std::string bias;    ///< its bias, if it has one
  bool in_out = false;           ///< the weight is stored [in, out] (GPT-2's Conv1D)
  bool is_head = false;
  /// Outputs are columns of the stored matrix, so that B A is added transposed.
  bool transposed() const { return kind == Kind::embedding || in_out; }
};

/// In the order of the model. A tied head is listed as "lm_head".
std::vector<Module> modules_of(const model::ModelConfig& model);

/// Errors    UsageError naming the key: a rank below 1, targets that fit no module (with the nearest), targets that
///           cannot have an adapter (norms), a regular expression that is not understood
model::Adapters resolve(const AdapterConfig& config, const model::ModelConfig& model);

/// The configuration as PEFT reads it beside the model's folder. Beside a vision model it names each module of the text
/// half in full, because ends of names would fit modules of the vision tower, too. Others stay as they are.
/// Errors    as resolve()
AdapterConfig config_for_peft(const AdapterConfig& config, const model::ModelConfig& model);

/// A tensor of an adapter, named without PEFT's prefix.
struct AdapterTensor {
  std::string name;  ///< "model.layers.0.self_attn.q_proj.lora_A.weight"
  std::vector<int64_t> shape;
};

/// All tensors that the adapters of a model consist of, with the whole modules' own parameters.
std::vector<AdapterTensor> adapter_tensors(const model::Adapters& adapters, const model::ModelConfig& model);

/// Refuses names of settings that fit nothing, because they are mistyped: targets and exceptions without a module,
/// blocks that are not there, ranks and values of alpha for modules without an adapter. (In PEFT's files they may
/// stand: resolve() reads over them, as PEFT does.) `adapters` are what resolve() makes of `config`. Errors UsageError
/// naming the setting, with the nearest name or a way out
void require_names(const AdapterConfig& config, const model::ModelConfig& model, const model::Adapters& adapters);

/// Whether this text instead of a list of modules means every matrix but the head.
bool is_all_linear(std::string word);

}  // namespace trireme::adapt
