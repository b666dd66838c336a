#include "trireme/checkpoint/dtype.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

struct Info {
  std::string_view name;
  std::string_view torch_name;
  int64_t bytes;
};

constexpr std::array<Info, 15> kInfo{{{"F64", "float64", 8},
                                      {"F32", "float32", 4},
                                      {"F16", "float16", 2},
                                      {"BF16", "bfloat16", 2},
                                      {"I64", "int64", 8},
                                      {"I32", "int32", 4},
                                      {"I16", "int16", 2},
                                      {"I8", "int8", 1},
                                      {"U64", "uint64", 8},
                                      {"U32", "uint32", 4},
                                      {"U16", "uint16", 2},
                                      {"U8", "uint8", 1},
                                      {"BOOL", "bool", 1},
                                      {"F8_E4M3", "float8_e4m3fn", 1},
                                      {"F8_E5M2", "float8_e5m2", 1}}};

const Info& info(Dtype dtype) { return kInfo.at(static_cast<size_t>(dtype)); }

std::optional<Dtype> find(std::string_view name, std::string_view Info::* column) {
  const auto found = std::ranges::find(kInfo, name, column);
  return found == kInfo.end() ? std::nullopt : std::optional(static_cast<Dtype>(found - kInfo.begin()));
}

/// float64 to float32 rounded to odd: a later rounding to 16 bits then equals a direct one
/// (Boldo and Melquiond, "When double rounding is odd", 2005).
float to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (std::isnan(value) || static_cast<double>(nearest) == value) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(value)) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1u);
}

struct Float64 {
  using Stored = double;
  static double widen(double x) { return x; }
  static double narrow(float x) { return x; }
  static double narrow(double x) { return x; }
};

struct Float32 {
  using Stored = float;
  static float widen(float x) { return x; }
  static float narrow(float x) { return x; }
  static float narrow(double x) { return static_cast<float>(x); }
};

struct Bfloat16 {
  using Stored = uint16_t;
  static float widen(uint16_t x) { return std::bit_cast<float>(uint32_t{x} << 16); }
  static uint16_t narrow(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const bool nan = (bits & 0x7fffffff) > 0x7f800000;
    return static_cast<uint16_t>(nan ? (bits >> 16) | 0x40 : rounded);
  }
  static uint16_t narrow(double x) { return narrow(to_odd(x)); }
};

// Both ways after Fabian Giesen's public-domain float_to_half_fast3_rtne and half_to_float.
struct Float16 {
  using Stored = uint16_t;
  static float widen(uint16_t x) {
    constexpr uint32_t kExponent = 0x7c00u << 13;
    uint32_t bits = (x & 0x7fffu) << 13;
    const uint32_t exponent = bits & kExponent;
    bits += (127u - 15u) << 23;
    if (exponent == kExponent) {
      bits += (128u - 16u) << 23;  // infinity or NaN
    } else if (exponent == 0) {    // zero or subnormal: renormalise
      bits += 1u << 23;
      bits = std::bit_cast<uint32_t>(std::bit_cast<float>(bits) - std::bit_cast<float>(113u << 23));
    }
    return std::bit_cast<float>(bits | (uint32_t{x} & 0x8000u) << 16);
  }
  static uint16_t narrow(float x) {
    uint32_t bits = std::bit_cast<uint32_t>(x);
    const uint32_t sign = bits & 0x80000000u;
    bits ^= sign;
    uint32_t result;
    if (bits >= 143u << 23) {  // 65536 and above
      result = bits > 0x7f800000u ? 0x7e00u : 0x7c00u;
    } else if (bits < 113u << 23) {  // subnormal: the adder rounds at the right place
      constexpr uint32_t kMagic = (127u - 15u + 23u - 10u + 1u) << 23;
      result = std::bit_cast<uint32_t>(std::bit_cast<float>(bits) + std::bit_cast<float>(kMagic)) - kMagic;
    } else {
      bits += ((15u - 127u) << 23) + 0xfffu + ((bits >> 13) & 1u);
      result = bits >> 13;
    }
    return static_cast<uint16_t>(result | sign >> 16);
  }
  static uint16_t narrow(double x) { return narrow(to_odd(x)); }
};

template <class From, class To>
void convert_loop(const void* source, void* target, int64_t count) {
  const char* in = static_cast<const char*>(source);
  char* out = static_cast<char*>(target);
  for (int64_t i = 0; i < count; ++i) {
    typename From::Stored x;
    std::memcpy(&x, in + i * sizeof(x), sizeof(x));
    const typename To::Stored y = To::narrow(From::widen(x));
    std::memcpy(out + i * sizeof(y), &y, sizeof(y));
  }
}

template <class From>
void convert_from(const void* source, void* target, Dtype to, int64_t count) {
  switch (to) {
    case Dtype::f64:
      return convert_loop<From, Float64>(source, target, count);
    case Dtype::f32:
      return convert_loop<From, Float32>(source, target, count);
    case Dtype::f16:
      return convert_loop<From, Float16>(source, target, count);
    default:
      return convert_loop<From, Bfloat16>(source, target, count);
  }
}

}  // namespace

int64_t size_of(Dtype dtype) { return info(dtype).bytes; }

bool holds(Dtype wide, Dtype dtype) {
  return wide == dtype || (is_float(wide) && is_float(dtype) && size_of(wide) > size_of(dtype));
}

std::string_view dtype_name(Dtype dtype) { return info(dtype).name; }

std::string_view torch_name(Dtype dtype) { return info(dtype).torch_name; }

std::optional<Dtype> parse_dtype(std::string_view name) { return find(name, &Info::name); }

std::optional<Dtype> parse_torch_name(std::string_view name) { return find(name, &Info::torch_name); }

void convert(const void* source, Dtype from, void* target, Dtype to, int64_t count) {
  if (from == to) {
    if (source != target && count > 0) std::memcpy(target, source, static_cast<size_t>(count * size_of(from)));
    return;
  }
  if (!convertible(from, to))
    throw ShapeError(fmt::format("no conversion from {} to {}: only F64, F32, F16 and BF16 convert into each other",
                                 dtype_name(from), dtype_name(to)));
  switch (from) {
    case Dtype::f64:
      return convert_from<Float64>(source, target, to, count);
    case Dtype::f32:
      return convert_from<Float32>(source, target, to, count);
    case Dtype::f16:
      return convert_from<Float16>(source, target, to, count);
    default:
      return convert_from<Bfloat16>(source, target, to, count);
  }
}

void check_fits_float16(const void* values, int64_t count, const std::function<double(int64_t i)>& before,
                        const std::string& tensor, const std::string& path) {
  constexpr uint16_t kInfinite = 0x7c00;  // without the sign
  const char* halves = static_cast<const char*>(values);
  for (int64_t i = 0; i < count; ++i) {
    uint16_t half;
    std::memcpy(&half, halves + i * static_cast<int64_t>(sizeof(half)), sizeof(half));
    if ((half & 0x7fff) == kInfinite && std::isfinite(before(i)))
      throw CheckpointError(
          fmt::format(
              "tensor '{}' holds values beyond 65504, the largest of float16: write --dtype bfloat16 or float32",
              tensor),
          path, tensor);
  }
}

Dtype dtype_for(const TensorSpec& tensor, std::optional<Dtype> wanted) {
  if (!wanted || tensor.dtype == *wanted) return tensor.dtype;
  if (tensor.dtype == Dtype::f8_e4m3 || tensor.dtype == Dtype::f8_e5m2)
    throw UsageError(
        fmt::format("error: tensor '{}' is {}: its values need scales from other tensors, which are not applied here, "
                    "so it cannot become {}\n  take the model's {} files, or leave --dtype out to copy it as it is",
                    tensor.name, dtype_name(tensor.dtype), dtype_name(*wanted), dtype_name(*wanted)));
  return is_float(tensor.dtype) ? *wanted : tensor.dtype;
}

int64_t num_elements(std::span<const int64_t> shape) {
  int64_t count = 1;
  // A zero anywhere makes the product zero, whatever the other sizes are.
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  for (const int64_t size : shape) {
    if (size < 0) throw ShapeError("the shape " + shape_text(shape) + " holds a negative size");
    if (!empty && (__builtin_mul_overflow(count, size, &count) || count > kMostElements))
      throw ShapeError("the shape " + shape_text(shape) + " has more than 2^58 elements");
  }
  return empty ? 0 : count;
}

int64_t tensor_bytes(std::span<const int64_t> shape, Dtype dtype) { return num_elements(shape) * size_of(dtype); }

std::string shape_text(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace trireme::checkpoint
