// Settings of the model: its shape, the number format, how parameters form groups, and how ranks share one sequence.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/block_format.h"
#include "trireme/config/declaration.h"

namespace trireme::base {

std::span<const config::Choice<BlockFormat>> choices_of(BlockFormat);

}  // namespace trireme::base

namespace trireme::model {

/// The values of the setting `precision`; model::Precision holds the dtypes.
enum class NumberFormat { automatic, fp32_true, bf16_mixed, fp16_mixed, bf16_true, fp16_true, fp64_true, fp8_mixed };
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

/// How the bits of a Free Transformer's latent become a vector.
enum class Injection {
  automatic,
  table,  ///< a row of a table of 2^bits rows
  bits,  ///< R = W (2 B - 1), a column for each bit
};
std::span<const config::Choice<Injection>> choices_of(Injection);
/// More bits have no table.
constexpr int64_t kMostTableBits = 20, kMostLatentBits = 64;

/// Which of a text's last hidden states a classification head reads.
enum class Pooling {
  last,  ///< that of its last token (decoders)
  cls,  ///< that of its first token, which is [CLS] in BERT
  mean,  ///< their mean
};
std::span<const config::Choice<Pooling>> choices_of(Pooling);

/// Where the norms of an encoder's block stand: before attention and MLP, or behind the sums (BERT).
enum class NormPlacement { pre, post };
std::span<const config::Choice<NormPlacement>> choices_of(NormPlacement);

/// The activation of an encoder's MLP.
enum class EncoderActivation { gelu, gelu_new, relu };
std::span<const config::Choice<EncoderActivation>> choices_of(EncoderActivation);

/// A dtype for gradients: float32, or the dtype that units compute in.
enum class GradientDtype { automatic, fp32, compute };
std::span<const config::Choice<GradientDtype>> choices_of(GradientDtype);

/// How an update is kept in weights of two bytes, which lose most small changes by themselves.
enum class Rounding {
  nearest,
  stochastic,  ///< up or down at random, so that the mean is exact (Gupta et al., 2015)
  kahan,  ///< to nearest; a second tensor of two bytes keeps what was lost (Kahan, 1965)
};
std::span<const config::Choice<Rounding>> choices_of(Rounding);

/// Whose rule for the scale of the loss.
enum class ScaleRule { torch, deepspeed };
std::span<const config::Choice<ScaleRule>> choices_of(ScaleRule);

/// Such a number scales without rounding.
bool is_power_of_two(double x);

struct PrecisionSettings {
  NumberFormat format = NumberFormat::automatic;
  GradientDtype reduce = GradientDtype::automatic;  ///< of a micro-batch's gradients, between ranks
  GradientDtype gradients = GradientDtype::automatic;  ///< of their sum, which the optimizer reads
  Rounding rounding = Rounding::nearest;
  ScaleRule scale_rule = ScaleRule::torch;
  std::optional<double> loss_scale;  ///< static; absent: dynamic
  double initial_loss_scale = 65536;
  std::optional<int64_t> loss_scale_window;
  std::optional<int64_t> loss_scale_hysteresis;
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1;
  bool operator==(const PrecisionSettings&) const = default;
};
config::Section section(PrecisionSettings& settings);

/// Whether weights and optimizer state have two bytes, without masters.
inline bool has_narrow_weights(NumberFormat format) {
  return format == NumberFormat::bf16_true || format == NumberFormat::fp16_true;
}
/// Whether gradients are summed in two bytes, with these settings and `format` for theirs.
inline bool has_narrow_gradients(const PrecisionSettings& settings, NumberFormat format) {
  if (format == NumberFormat::fp32_true || format == NumberFormat::fp64_true) return false;
  return settings.gradients == GradientDtype::automatic ? has_narrow_weights(format)
                                                        : settings.gradients == GradientDtype::compute;
}

/// The latent of a Free Transformer; model::FreeConfig explains the fields. Absent: as the named model.
struct FreeSettings {
  std::optional<int64_t> latent_bits;
  std::optional<int64_t> split_layer;
  Injection injection = Injection::automatic;  ///< as the named model
  std::optional<double> free_bits;
  std::optional<double> kl_weight;
  std::optional<int64_t> latent;  ///< of each token that is generated
  std::optional<int64_t> latent_seed;  ///< of the codes that are drawn for them
  bool operator==(const FreeSettings&) const = default;
};
config::Section section(FreeSettings& settings);

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
  std::optional<bool> bidirectional;
  std::optional<NormPlacement> norm_placement;
  std::optional<EncoderActivation> hidden_act;
  std::optional<Pooling> pooling;
  std::optional<int64_t> num_labels;
  std::optional<std::vector<std::string>> labels;  ///< their names, in the order of their numbers
  std::optional<double> attention_dropout;
  std::optional<double> residual_dropout;
  std::optional<double> mlp_dropout;
  std::optional<double> embedding_dropout;
  base::BlockFormat quantize = base::BlockFormat::none;  ///< a section of its own
  base::BlockFormat quantize_head = base::BlockFormat::none;  ///< likewise
  FreeSettings free;  ///< a section of its own: `free`
  bool operator==(const ModelSettings&) const = default;
};
config::Section section(ModelSettings& settings);
/// The rows of ModelSettings::quantize and quantize_head, which have LitGPT's name without a section.
config::Section quantize_section(ModelSettings& settings);

/// Which parameters form a group; model::Grouping explains the fields.
struct WrapSettings {
  WrapBy by = WrapBy::block;
  int64_t min_num_params = 0;
  std::optional<std::vector<std::string>> units;
  bool operator==(const WrapSettings&) const = default;
};
config::Section section(WrapSettings& settings);

}  // namespace trireme::model
