// Results too large for the caches are written past them. Then no line is fetched from memory only to be overwritten:
// such fetches would be a third of a copy's traffic. Smaller results stay in the caches, because the training step soon
// reads them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trireme/base/processor.h"

namespace trireme::ops {

/// Whether rows of `width` elements of `y` are written past the caches. They are if `y` is larger than the last-level
/// cache, rows begin at multiples of 64 bytes, and `y` is not the memory of `a` or `b`, whose lines would already be in
/// the caches.
inline bool past_caches(const at::Tensor& y, int64_t width, const void* a, const void* b = nullptr) {
  static const int64_t cache = base::last_level_cache_bytes();
  constexpr int64_t kLine = 64;
  const void* to = y.const_data_ptr();
  const auto bytes = static_cast<int64_t>(y.nbytes()), row_bytes = width * static_cast<int64_t>(y.element_size());
  return bytes > cache && reinterpret_cast<uintptr_t>(to) % kLine == 0 && row_bytes % kLine == 0 && to != a && to != b;
}

}  // namespace trireme::ops
