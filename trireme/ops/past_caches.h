// Results too large for the caches are written past them: a line is then not fetched from memory only to be
// overwritten, a third of what a copy moves. Smaller ones stay, because a training step reads soon what it has just
// written.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trireme/ops/limits.h"

namespace trireme::ops {

/// Whether rows of `width` elements of `y` are written past the caches: `y` is larger than the last of them, its rows
/// begin at multiples of 64 bytes, and it takes the place of neither `a` nor `b`, whose lines would be there already.
inline bool past_caches(const at::Tensor& y, int64_t width, const void* a, const void* b = nullptr) {
  static const int64_t cache = last_level_cache_bytes();
  constexpr int64_t kLine = 64;
  const void* to = y.const_data_ptr();
  const auto bytes = static_cast<int64_t>(y.nbytes()), row_bytes = width * static_cast<int64_t>(y.element_size());
  return bytes > cache && reinterpret_cast<uintptr_t>(to) % kLine == 0 && row_bytes % kLine == 0 && to != a && to != b;
}

}  // namespace trireme::ops
