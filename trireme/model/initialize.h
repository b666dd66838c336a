// Initial weights: element i of the parameter `name` is a function of (seed, name, i) alone, so that every
// mesh starts from the same model and a rank fills only what it owns.
// Source: SplitMix64 (Steele et al. 2014) as counter-based bits, Box-Muller for pairs (2k, 2k+1).
#pragma once

#include <cstdint>
#include <string_view>

#include "trireme/model/unit.h"

namespace trireme::model {

/// Writes elements [begin, end) of the whole parameter's flat row-major order to `out` (float or double).
void initialize_span(float* out, const ParameterSpec& parameter, uint64_t seed, int64_t begin, int64_t end);
void initialize_span(double* out, const ParameterSpec& parameter, uint64_t seed, int64_t begin, int64_t end);

/// Writes the held elements [begin, end) of a parameter that may be divided (ParameterSpec::pieces): what belongs there
/// of the whole parameter, and zeros in the padding. Where nothing is divided it is initialize_span.
void initialize_held(float* out, const ParameterSpec& parameter, uint64_t seed, int64_t begin, int64_t end);
void initialize_held(double* out, const ParameterSpec& parameter, uint64_t seed, int64_t begin, int64_t end);

}  // namespace trireme::model
