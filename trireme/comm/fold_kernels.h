// Inner loops of the fold, compiled several times from fold_kernels.cpp for different instruction sets; the best
// one that the processor has is chosen at run time (fold.cpp).
#pragma once

#include <cstdint>

namespace trireme::comm {

/// acc[i] = x[i] (start), acc[i] + x[i] (sum) or max(acc[i], x[i]) for `count` elements. acc and x do not overlap.
using FoldKernel = void (*)(void* acc, const void* x, int64_t count);

/// Copies `bytes`. Other cores see the copy before any later store of this core.
using CopyKernel = void (*)(void* to, const void* from, int64_t bytes);

/// Element types of inputs and output.
enum class FoldPair { f32, f64, bf16, f16, i64, i32, i16, i8, u8, bf16_into_f32, f16_into_f32 };
constexpr int kNumFoldPairs = 11;

struct FoldTable {
  FoldKernel start[kNumFoldPairs], sum[kNumFoldPairs], max[kNumFoldPairs];
  CopyKernel stream, store;  ///< stream bypasses the caches; store writes through them
};

namespace fold_baseline {
const FoldTable& table();
}
namespace fold_avx2 {
const FoldTable& table();
}
namespace fold_avx512 {
const FoldTable& table();
}

}  // namespace trireme::comm
