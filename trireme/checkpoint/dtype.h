// Element types and shapes of tensors in checkpoint files, and the conversions between the types.
//
// The enum is not LibTorch's, so that files can be read and planned without LibTorch. A float converts to another float
// type with one rounding to nearest, ties to even (float64 to a 16-bit type too: no double rounding through float32).
// Every other type is copied byte for byte. Names are those of safetensors.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::checkpoint {

enum class Dtype : uint8_t { f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, boolean, f8_e4m3, f8_e5m2 };

/// Bytes of one element.
int64_t size_of(Dtype dtype);

/// The name in a safetensors header: "BF16".
std::string_view dtype_name(Dtype dtype);

/// The dtype with this name in a safetensors header; nothing for dtypes that Trireme does not know.
std::optional<Dtype> parse_dtype(std::string_view name);

/// PyTorch's name: "bfloat16".
std::string_view torch_name(Dtype dtype);
std::optional<Dtype> parse_torch_name(std::string_view name);

/// F64, F32, F16 or BF16: what convert() converts.
inline bool is_float(Dtype dtype) { return dtype <= Dtype::bf16; }

/// True when convert() accepts the pair: equal types, or two of F64, F32, F16, BF16.
inline bool convertible(Dtype from, Dtype to) { return from == to || (is_float(from) && is_float(to)); }

/// Whether `wide` holds every value of `dtype`, as float32 does those of bfloat16.
bool holds(Dtype wide, Dtype dtype);

/// Converts `count` elements of `source` to `target`. The two must not overlap, except if address and dtype are equal.
/// NaN stays NaN; values beyond the target's range become infinite.
void convert(const void* source, Dtype from, void* target, Dtype to, int64_t count);

/// Refuses a tensor of which one of `count` values in float16 is infinite and was finite before, as value `before(i)`:
/// float16 ends at 65504. `path` is the tensor's file or folder.
/// Errors    CheckpointError naming the tensor
void check_fits_float16(const void* values, int64_t count, const std::function<double(int64_t i)>& before,
                        const std::string& tensor, const std::string& path);

/// A tensor as a file names and stores it, row-major.
struct TensorSpec {
  std::string name;  ///< "model.norm.weight"
  std::vector<int64_t> shape;  ///< whole tensor, never a shard; empty for a scalar
  Dtype dtype = Dtype::f32;  ///< in the file; f32 for quantised blocks
};

/// The dtype in which a tensor is written if the user asked for `wanted`: only float tensors change.
/// Errors    UsageError for 8-bit floats: their values need scales from other tensors
Dtype dtype_for(const TensorSpec& tensor, std::optional<Dtype> wanted);

/// The largest tensor. A shape from a file may hold any numbers. This many elements times the bytes of any dtype (at
/// most 16) still fit into int64_t, so the result of num_elements() can be multiplied by size_of().
inline constexpr int64_t kMostElements = int64_t{1} << 58;

/// Number of elements; ShapeError if a size is negative or there are more than kMostElements.
int64_t num_elements(std::span<const int64_t> shape);

/// Bytes of a tensor of this shape in `dtype`. Errors as num_elements()
int64_t tensor_bytes(std::span<const int64_t> shape, Dtype dtype);

/// "[256, 64]"
std::string shape_text(std::span<const int64_t> shape);

}  // namespace trireme::checkpoint
