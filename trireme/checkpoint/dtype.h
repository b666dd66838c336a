// Element types of checkpoint files, and the conversions between them.
//
// An enum of our own, so that files can be read and planned without LibTorch. Floats convert into each
// other with one rounding to nearest, ties to even (float64 to a 16-bit type too: no double rounding
// through float32). Every other type is carried byte for byte. Names are those of safetensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace trireme::checkpoint {

enum class Dtype : uint8_t {
  f64,
  f32,
  f16,
  bf16,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean,
  f8_e4m3,
  f8_e5m2,
};

/// Bytes of one element.
int64_t size_of(Dtype dtype);

/// The name in a safetensors header: "BF16".
std::string_view dtype_name(Dtype dtype);

/// The dtype a safetensors header names, or nothing when it is not one of ours.
std::optional<Dtype> parse_dtype(std::string_view name);

/// F64, F32, F16 or BF16: what convert() converts.
inline bool is_float(Dtype dtype) { return dtype <= Dtype::bf16; }

/// True when convert() accepts the pair: equal types, or two of F64, F32, F16, BF16.
bool convertible(Dtype from, Dtype to);

/// F8_E4M3 and F8_E5M2: such values mean something only together with scales, which stand in other tensors.
bool is_scaled(Dtype dtype);

/// Writes `count` elements of `source` to `target`, which must not overlap unless they are equal in place
/// and type. NaN stays NaN, values beyond the target's range become infinite.
void convert(const void* source, Dtype from, void* target, Dtype to, int64_t count);

}  // namespace trireme::checkpoint
