// Gradients of weights that all rows share are sums over rows. Each RowBlocks block gets a partial sum in the
// wide type; here the partials are added in order of blocks, to what is there where the gradient accumulates, and
// rounded once.
#pragma once

#include <algorithm>

#include "trireme/ops/gradient.h"
#include "trireme/ops/parallel.h"
#include "trireme/ops/storage.h"

namespace trireme::ops {

/// gradient [width] = sum of partials [num_blocks, width] (wide type of its dtype); zeros when there is no block.
inline void combine_partials(const Gradient& gradient, const void* partials, int64_t num_blocks) {
  with_storage(storage_of(gradient.to.scalar_type()), [&]<class T>() {
    T* to = static_cast<T*>(gradient.to.mutable_data_ptr());
    const auto* from = static_cast<const Wide<T>*>(partials);
    const int64_t width = gradient.to.numel();
    constexpr int64_t kPiece = 64;  // columns at a time, so that the compiler adds vectors
    for (int64_t begin = 0; begin < width; begin += kPiece) {
      const int64_t n = std::min(kPiece, width - begin);
      Wide<T> sums[kPiece] = {};
      for (int64_t block = 0; block < num_blocks; ++block)
        for (int64_t i = 0; i < n; ++i) sums[i] += from[block * width + begin + i];
      if (gradient.accumulate)
        for (int64_t i = 0; i < n; ++i) sums[i] += widen(to[begin + i]);
      for (int64_t i = 0; i < n; ++i) to[begin + i] = narrow<T>(sums[i]);
    }
  });
}

}  // namespace trireme::ops
