// Gradients of weights that all rows share are sums over rows. Each RowBlocks block gets a partial sum in the wide
// type. The partials are added in the order of blocks, then to the old value if the gradient accumulates, and rounded
// once.
#pragma once

#include <algorithm>
#include <cstring>
#include <initializer_list>

#include "trireme/ops/gradient.h"
#include "trireme/ops/parallel.h"
#include "trireme/ops/storage.h"

namespace trireme::ops {

/// gradient [width], if it is wanted, = sum of partials [num_blocks, width], which have the wide type of its dtype.
/// Without blocks the sum is 0.
inline void combine_partials(const Gradient& gradient, const void* partials, int64_t num_blocks) {
  if (!gradient.defined()) return;
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

/// Computes at most two gradients [width] of one operation. add(first, last, sums) adds the rows [first, last) to
/// sums[k] [width] for each gradient k; sums have the dtype `wide`.
template <class Add>
void sum_rows(std::initializer_list<const Gradient*> gradients, int64_t num_rows, int64_t width, at::ScalarType wide,
              const Add& add) {
  const RowBlocks blocks(num_rows);
  const int64_t bytes = width * static_cast<int64_t>(c10::elementSize(wide));
  struct Partials;
  char* const partials =
      thread_scratch<Partials, char>(static_cast<int64_t>(gradients.size()) * blocks.num_blocks * bytes);
  parallel_rows(blocks.num_blocks, 1, [&](int64_t first_block, int64_t last_block) {
    for (int64_t block = first_block; block < last_block; ++block) {
      void* sums[2] = {};
      for (size_t k = 0; k < gradients.size(); ++k)
        sums[k] = std::memset(partials + (static_cast<int64_t>(k) * blocks.num_blocks + block) * bytes, 0, bytes);
      add(blocks.first(block), blocks.last(block), sums);
    }
  });
  const char* of_gradient = partials;
  for (const Gradient* gradient : gradients) {
    combine_partials(*gradient, of_gradient, blocks.num_blocks);
    of_gradient += blocks.num_blocks * bytes;
  }
}

}  // namespace trireme::ops
