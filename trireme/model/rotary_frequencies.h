// The inverse frequencies of rotary positions, for each of Hugging Face's kinds of `rope_scaling`.
//
// Models were trained with the numbers that transformers computes in float32. At position 131071 the last bit of a
// frequency changes an angle by 0.008. So this code calls LibTorch's float32 functions in the order of transformers
// 5.23 (modeling_rope_utils.py) and gets the same bits. ops::rotary_table also rounds angles as transformers does.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace trireme::model {

/// `rope_scaling` (or `rope_parameters`) of a config.json, with its defaults. Each type reads only its own fields.
struct RopeScaling {
  enum class Type { none, linear, llama3, yarn, dynamic, longrope };
  Type type = Type::none;
  double factor = 1;            ///< positions are stretched by this factor
  double low_freq_factor = 1;   ///< llama3
  double high_freq_factor = 4;  ///< llama3
  double original_max_position_embeddings = 8192;  ///< llama3, yarn, dynamic, longrope: positions before stretching
  double beta_fast = 32;  ///< yarn: frequencies with more turns in the original context do not change
  double beta_slow = 1;  ///< yarn: frequencies with fewer turns are divided by `factor`
  std::optional<double> attention_factor;  ///< yarn, longrope; absent: computed from factor, or from the two below
  double mscale = 0;  ///< yarn; 0: absent
  double mscale_all_dim = 0;  ///< yarn; 0: absent
  bool truncate = true;  ///< yarn: the ramp starts and ends at whole dimensions
  /// longrope: each frequency is divided by its own; the second list if a sequence is longer than the original
  /// positions.
  std::vector<double> short_factor = {}, long_factor = {};
  bool operator==(const RopeScaling&) const = default;
};

/// theta^(-2i/head_dim) for i < head_dim/2, scaled. head_dim is the rotated part of a head. `sequence` is the length of
/// the sequences, which only dynamic and longrope look at.
///
/// Numerics  float32 values, bit for bit those of transformers on the same LibTorch and processor
/// Errors    UsageError naming the number and its rule: an even head_dim, theta > 1, factor >= 1, original positions
///           >= 1, low_freq_factor < high_freq_factor
/// Source    linear: Chen et al. (2023); llama3: Llama 3.1's release; yarn: Peng et al., YaRN (2023); longrope: Ding et
///           al., LongRoPE (2024)
std::vector<double> rotary_frequencies(double theta, int64_t head_dim, const RopeScaling& scaling,
                                       int64_t sequence = 0);

/// The factor of cosines and sines: 1, except for yarn and longrope.
double rotary_attention_factor(const RopeScaling& scaling);

}  // namespace trireme::model
