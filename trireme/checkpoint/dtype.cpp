#include "trireme/checkpoint/dtype.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

struct Info {
  std::string_view name;
  int64_t bytes;
};

constexpr std::array<Info, 15> kInfo{{{"F64", 8},
                                      {"F32", 4},
                                      {"F16", 2},
                                      {"BF16", 2},
                                      {"I64", 8},
                                      {"I32", 4},
                                      {"I16", 2},
                                      {"I8", 1},
                                      {"U64", 8},
                                      {"U32", 4},
                                      {"U16", 2},
                                      {"U8", 1},
                                      {"BOOL", 1},
                                      {"F8_E4M3", 1},
                                      {"F8_E5M2", 1}}};

const Info& info(Dtype dtype) { return kInfo.at(static_cast<size_t>(dtype)); }

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

std::string_view dtype_name(Dtype dtype) { return info(dtype).name; }

std::optional<Dtype> parse_dtype(std::string_view name) {
  for (size_t i = 0; i < kInfo.size(); ++i) {
    if (kInfo[i].name == name) return static_cast<Dtype>(i);
  }
  return std::nullopt;
}

bool is_scaled(Dtype dtype) { return dtype == Dtype::f8_e4m3 || dtype == Dtype::f8_e5m2; }

bool convertible(Dtype from, Dtype to) { return from == to || (is_float(from) && is_float(to)); }

void convert(const void* source, Dtype from, void* target, Dtype to, int64_t count) {
  if (from == to) {
    if (source != target && count > 0) std::memcpy(target, source, static_cast<size_t>(count * size_of(from)));
    return;
  }
  if (!convertible(from, to)) {
    throw ShapeError("no conversion from " + std::string(dtype_name(from)) + " to " + std::string(dtype_name(to)) +
                     ": only F64, F32, F16 and BF16 convert into each other");
  }
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

}  // namespace trireme::checkpoint
