#include "trireme/comm/fold.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/comm/fold_kernels.h"

namespace trireme::comm {

namespace {

const FoldTable& best_table() {
#ifdef TRIREME_FOLD_X86
  static const FoldTable& table =
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")
          ? fold_avx512::table()
      : __builtin_cpu_supports("avx2") ? fold_avx2::table()
                                       : fold_baseline::table();
  return table;
#else
  return fold_baseline::table();
#endif
}

FoldPair pair_of(at::ScalarType input, at::ScalarType output) {
  if (output == at::kFloat && input == at::kBFloat16) return FoldPair::bf16_into_f32;
  if (output == at::kFloat && input == at::kHalf) return FoldPair::f16_into_f32;
  check_invariant(input == output, "a fold of mixed dtypes goes from bfloat16 or float16 into float32");
  switch (input) {
    case at::kFloat:
      return FoldPair::f32;
    case at::kDouble:
      return FoldPair::f64;
    case at::kBFloat16:
      return FoldPair::bf16;
    case at::kHalf:
      return FoldPair::f16;
    case at::kLong:
      return FoldPair::i64;
    case at::kInt:
      return FoldPair::i32;
    case at::kShort:
      return FoldPair::i16;
    case at::kChar:
      return FoldPair::i8;
    case at::kByte:
      return FoldPair::u8;
    default:
      throw InternalError("a fold over a dtype that check_call lets through but no kernel knows");
  }
}

}  // namespace

void fold(void* output, at::ScalarType output_dtype, std::span<const void* const> sources, at::ScalarType input_dtype,
          int64_t count, ReduceOptions options) {
  if (count == 0) return;
  const int pair = static_cast<int>(pair_of(input_dtype, output_dtype));
  const FoldTable& table = best_table();
  const FoldKernel start = table.start[pair];
  const FoldKernel step = options.op == ReduceOp::sum ? table.sum[pair] : table.max[pair];
  const int64_t out_size = static_cast<int64_t>(c10::elementSize(output_dtype));
  const int64_t in_size = static_cast<int64_t>(c10::elementSize(input_dtype));
  const bool in_place = std::ranges::find(sources, static_cast<const void*>(output)) != sources.end();

  constexpr int64_t kBlock = 2048;  // elements: at most 16 KiB of sums
  alignas(64) std::byte scratch[kBlock * 8];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    auto* out = static_cast<std::byte*>(output) + begin * out_size;
    // A source that is the output must be read in its turn, after others have been added: sum elsewhere.
    std::byte* acc = in_place ? scratch : out;
    if (in_place && options.accumulate) std::memcpy(acc, out, n * out_size);
    bool started = options.accumulate;
    for (const void* source : sources) {
      const auto* x = static_cast<const std::byte*>(source) + begin * in_size;
      (started ? step : start)(acc, x, n);
      started = true;
    }
    if (in_place) std::memcpy(out, acc, n * out_size);
  }
}

}  // namespace trireme::comm
