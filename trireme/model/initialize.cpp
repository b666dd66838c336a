#include "trireme/model/initialize.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "trireme/base/mix64.h"

namespace trireme::model {
namespace {

uint64_t mix(uint64_t z) { return base::mix64(z + 0x9e3779b97f4a7c15ull); }

uint64_t key_of(std::string_view name, uint64_t seed) {
  uint64_t h = 0xcbf29ce484222325ull;  // FNV-1a, then mixed with the seed
  for (unsigned char c : name) h = (h ^ c) * 0x100000001b3ull;
  return mix(h ^ mix(seed));
}

// The pair of normals number `pair` of the stream `key`.
void normal_pair(uint64_t key, int64_t pair, float& even, float& odd) {
  const uint64_t bits = mix(key + 0x9e3779b97f4a7c15ull * static_cast<uint64_t>(pair));
  const float u = (static_cast<float>(bits >> 40) + 0.5f) * 0x1p-24f;  // (0, 1)
  const float v = static_cast<float>((bits >> 8) & 0xffffff) * 0x1p-24f;
  const float radius = std::sqrt(-2.0f * std::log(u));
  const float angle = 6.28318530717958647692f * v;
  even = radius * std::cos(angle);
  odd = radius * std::sin(angle);
}

template <typename T>
void initialize(T* out, const ParameterSpec& parameter, uint64_t seed, int64_t begin, int64_t end) {
  using Kind = Initializer::Kind;
  const uint64_t key = key_of(parameter.name, seed);
  if (parameter.init.kind == Kind::uniform) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t bits = mix(key + 0x9e3779b97f4a7c15ull * static_cast<uint64_t>(i));
      const float u = (static_cast<float>(bits >> 40) + 0.5f) * 0x1p-24f;  // (0, 1)
      out[i - begin] = static_cast<T>(static_cast<float>(parameter.init.stddev) * (2 * u - 1));
    }
    return;
  }
  if (parameter.init.kind != Kind::normal) {
    std::fill(out, out + (end - begin), parameter.init.kind == Kind::ones ? T(1) : T(0));
    return;
  }
  const auto stddev = static_cast<float>(parameter.init.stddev);
  for (int64_t i = begin; i < end;) {
    float even, odd;
    normal_pair(key, i / 2, even, odd);
    if (i % 2 == 0) out[i++ - begin] = static_cast<T>(stddev * even);
    if (i < end && i % 2 == 1) out[i++ - begin] = static_cast<T>(stddev * odd);
  }
}

}  // namespace

template <typename T>
void initialize_held(T* out, const ParameterSpec& parameter, uint64_t seed, int64_t begin, int64_t end) {
  std::fill(out, out + (end - begin), T(0));
  for_each_run(parameter, begin, end, [&](int64_t local, int64_t full, int64_t count) {
    initialize(out + (local - begin), parameter, seed, full, full + count);
  });
}
template void initialize_held(float*, const ParameterSpec&, uint64_t, int64_t, int64_t);
template void initialize_held(double*, const ParameterSpec&, uint64_t, int64_t, int64_t);

}  // namespace trireme::model
