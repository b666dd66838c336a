// Scaling of rotary frequencies in GGUF. linear and yarn are keys; llama3's is a table, rope_freqs.weight: what each
// frequency is divided by. The three bounds behind the table can be scaled together without changing it, so they are
// given back with low_freq_factor 1, as every published model has it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace trireme::checkpoint {

struct Llama3Scaling {
  double factor = 8;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_max_position_embeddings = 8192;
};

/// The table of head_dim / 2 divisors.
std::vector<float> llama3_divisors(const Llama3Scaling& scaling, int64_t head_dim, double theta);

/// The scaling whose table this is, within 1e-4 of each entry; nothing when it is none of llama3's.
std::optional<Llama3Scaling> find_llama3_scaling(std::span<const float> divisors, double theta);

}  // namespace trireme::checkpoint
