// Gradients of weights that all rows share are sums over rows. Each RowBlocks block gets a partial sum in the
// wide type; here the partials are added in order of blocks and rounded once.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/ops/parallel.h"
#include "trireme/ops/storage.h"

namespace trireme::ops {

/// out [width] = sum of partials [num_blocks, width] (wide type of out's dtype); zeros when there is no block.
inline void combine_partials(const at::Tensor& out, const void* partials, int64_t num_blocks) {
  with_storage(storage_of(out.scalar_type()), [&]<class T>() {
    T* to = static_cast<T*>(out.mutable_data_ptr());
    const auto* from = static_cast<const Wide<T>*>(partials);
    const int64_t width = out.numel();
    for (int64_t i = 0; i < width; ++i) {
      Wide<T> sum = 0;
      for (int64_t block = 0; block < num_blocks; ++block) sum += from[block * width + i];
      to[i] = narrow<T>(sum);
    }
  });
}

}  // namespace trireme::ops
