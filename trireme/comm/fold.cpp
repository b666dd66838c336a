#include "trireme/comm/fold.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/processor.h"
#include "trireme/comm/fold_kernels.h"

namespace trireme::comm {
namespace {
const FoldTable& best_table() {
#ifdef TRIREME_FOLD_X86
  const base::Processor& has = base::processor();
  static const FoldTable& table = has.avx512 ? fold_avx512::table()
                                  : has.avx2 ? fold_avx2::table()
                                             : fold_baseline::table();
  return table;
#else
  return fold_baseline::table();
#endif
}

// In the order of FoldPair.
constexpr at::ScalarType kFolded[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong,
                                      at::kInt,   at::kShort,  at::kChar,     at::kByte};

FoldPair pair_of(at::ScalarType input, at::ScalarType output) {
  if (output == at::kFloat && input == at::kBFloat16) return FoldPair::bf16_into_f32;
  if (output == at::kFloat && input == at::kHalf) return FoldPair::f16_into_f32;
  check_invariant(can_fold(input, output), "check_call refuses dtypes that have no fold");
  return static_cast<FoldPair>(std::ranges::find(kFolded, input) - kFolded);
}

constexpr int64_t kBlock = 2048;  // elements: at most 16 KiB of sums
constexpr int64_t kStrip = 256;  // elements between requests for later lines: more at once would wait for each other

// The kernels and element sizes of one fold.
struct Kernels {
  Kernels(at::ScalarType output_dtype, at::ScalarType input_dtype, ReduceOptions options)
      : accumulate(options.accumulate),
        out_size(static_cast<int64_t>(c10::elementSize(output_dtype))),
        in_size(static_cast<int64_t>(c10::elementSize(input_dtype))) {
    const int pair = static_cast<int>(pair_of(input_dtype, output_dtype));
    const FoldTable& table = best_table();
    start = table.start[pair];
    step = options.op == ReduceOp::sum ? table.sum[pair] : table.max[pair];
  }

  /// Folds `n` elements from element `begin` on into `acc`.
  void block(std::byte* acc, std::span<const void* const> sources, int64_t begin, int64_t n) const {
    bool started = accumulate;
    for (const void* source : sources) {
      (started ? step : start)(acc, static_cast<const std::byte*>(source) + begin * in_size, n);
      started = true;
    }
  }

  /// Prefetches the lines of a later block. The processor's own prefetchers stop at each page of 4 KiB.
  void prefetch(std::span<const void* const> sources, int64_t begin, int64_t n) const {
    for (const void* source : sources) {
      const auto* from = static_cast<const char*>(source) + begin * in_size;
      for (int64_t i = 0; i < n * in_size; i += 64) __builtin_prefetch(from + i);
    }
  }

  bool accumulate;
  int64_t out_size, in_size;
  FoldKernel start, step;
};
}  // namespace

bool can_fold(at::ScalarType input, at::ScalarType output) {
  const bool mixed = output == at::kFloat && (input == at::kBFloat16 || input == at::kHalf);
  return mixed || (input == output && std::ranges::find(kFolded, input) != std::end(kFolded));
}

void fold(void* output, at::ScalarType output_dtype, std::span<const void* const> sources, at::ScalarType input_dtype,
          int64_t count, ReduceOptions options) {
  if (count == 0) return;
  const Kernels kernels(output_dtype, input_dtype, options);
  const bool in_place = std::ranges::find(sources, static_cast<const void*>(output)) != sources.end();
  alignas(64) std::byte scratch[kBlock * 8];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    auto* out = static_cast<std::byte*>(output) + begin * kernels.out_size;
    // If the output is also a source, it must stay unchanged until its turn. So the sum is built in `scratch`.
    std::byte* acc = in_place ? scratch : out;
    if (in_place && options.accumulate) std::memcpy(acc, out, n * kernels.out_size);
    kernels.block(acc, sources, begin, n);
    if (in_place) std::memcpy(out, acc, n * kernels.out_size);
  }
}

void fold_to_all(std::span<void* const> outputs, at::ScalarType output_dtype, std::span<const void* const> sources,
                 at::ScalarType input_dtype, int64_t count, ReduceOptions options, Stores stores) {
  if (count == 0) return;
  const Kernels kernels(output_dtype, input_dtype, options);
  alignas(64) std::byte scratch[kBlock * 8];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin), at = begin * kernels.out_size, bytes = n * kernels.out_size;
    if (options.accumulate) std::memcpy(scratch, static_cast<const std::byte*>(outputs[0]) + at, bytes);
    for (int64_t i = 0; i < n; i += kStrip) {
      const int64_t ahead = begin + i + kBlock;
      kernels.prefetch(sources, ahead, std::min(kStrip, count - ahead));
      kernels.block(scratch + i * kernels.out_size, sources, begin + i, std::min(kStrip, n - i));
    }
    const CopyKernel copy = stores == Stores::streaming ? best_table().stream : best_table().store;
    for (void* output : outputs) copy(static_cast<std::byte*>(output) + at, scratch, bytes);
  }
}

void stream_copy(void* to, const void* from, int64_t bytes) { best_table().stream(to, from, bytes); }

void copy_for_peer(void* to, const void* from, int64_t bytes) {
  base::processor().is_amd ? stream_copy(to, from, bytes) : static_cast<void>(std::memcpy(to, from, bytes));
}

}  // namespace trireme::comm
