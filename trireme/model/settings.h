// Settings of the model: its shape, the number format, how parameters form groups, and how ranks share one sequence.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/config/declaration.h"

namespace trireme::model {

/// The values of the setting `precision`; model::Precision holds the dtypes.
enum class NumberFormat { automatic, fp32_true, bf16_mixed, fp64_true };
std::span<const config::Choice<NumberFormat>> choices_of(NumberFormat);

/// How context-parallel ranks attend to each other's tokens.
enum class Context {
  ring,     ///< keys and values travel around the ranks
  ulysses,  ///< ranks exchange tokens for heads
};
std::span<const config::Choice<Context>> choices_of(Context);

/// What gets a group (FSDP unit) of its own: it is gathered and reduced by itself.
enum class WrapBy {
  block,      ///< each unit: embedding, block, head
  layer,      ///< attention and MLP of a block separately
  parameter,  ///< each parameter; parameters that form one matrix stay together
};
std::span<const config::Choice<WrapBy>> choices_of(WrapBy);

/// The first values of a low-rank adapter's A (adapters.h). B is zero, so training starts from the frozen model; except
/// with `random`.
enum class AdapterInit {
  kaiming,  ///< uniform in +-1/sqrt(in), as PEFT's init_lora_weights true
  gaussian,  ///< normal with standard deviation 1/rank
  random,  ///< kaiming, and B uniform in +-1/sqrt(rank), as PEFT's init_lora_weights false
};
std::span<const config::Choice<AdapterInit>> choices_of(AdapterInit);

struct PrecisionSettings {
  NumberFormat precision = NumberFormat::automatic;
  bool operator==(const PrecisionSettings&) const = default;
};
config::Section section(PrecisionSettings& settings);

/// The model's shape: a name, and keys of config.json that override it.
struct ModelSettings {
  bool from_scratch = false;
  std::string name;
  std::optional<std::string> model_type;
  std::optional<int64_t> vocab_size;
  std::optional<int64_t> hidden_size;
  std::optional<int64_t> intermediate_size;
  std::optional<int64_t> num_hidden_layers;
  std::optional<int64_t> num_attention_heads;
  std::optional<int64_t> num_key_value_heads;
  std::optional<int64_t> head_dim;
  std::optional<int64_t> max_position_embeddings;
  std::optional<double> rms_norm_eps;
  std::optional<double> rope_theta;
  std::optional<bool> tie_word_embeddings;
  std::optional<double> initializer_range;
  bool operator==(const ModelSettings&) const = default;
};
config::Section section(ModelSettings& settings);

/// Which parameters form a group; model::Grouping explains the fields.
struct WrapSettings {
  WrapBy by = WrapBy::block;
  int64_t min_num_params = 0;
  std::optional<std::vector<std::string>> units;
  bool operator==(const WrapSettings&) const = default;
};
config::Section section(WrapSettings& settings);

}  // namespace trireme::model
