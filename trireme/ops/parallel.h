// Splits a range of rows over LibTorch's threads. A rank usually has one thread; then this is a plain call.
// at::parallel_for is not used: without -fopenmp it is silently serial, and with it a second thread pool may start. No
// result may depend on how a range is split: kernels work row by row, and sums over rows use RowBlocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace trireme::ops {

/// Calls body(first, last, context) for disjoint pieces of at least `grain` rows that cover [0, num_rows). The body
/// must not throw.
void parallel_range(int64_t num_rows, int64_t grain, void (*body)(int64_t first, int64_t last, void* context),
                    void* context);

/// The same for a lambda body(first, last).
template <class Body>
void parallel_rows(int64_t num_rows, int64_t grain, const Body& body) {
  parallel_range(
      num_rows, grain,
      [](int64_t first, int64_t last, void* context) { (*static_cast<const Body*>(context))(first, last); },
      const_cast<Body*>(&body));
}

/// The fewest rows of `width` elements that are worth another thread.
inline int64_t row_grain(int64_t width) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, width)); }

/// Calls kernel(arguments, first, last) for pieces of `num_rows` rows of `width` elements.
template <class Arguments>
void run_rows(void (*kernel)(const Arguments&, int64_t, int64_t), const Arguments& arguments, int64_t num_rows,
              int64_t width) {
  parallel_rows(num_rows, row_grain(width), [&](int64_t first, int64_t last) { kernel(arguments, first, last); });
}

/// How a sum over rows is divided: at most 16 blocks, which depend on the number of rows alone. One thread sums a block
/// in the order of rows, and the blocks are added in order, so that the bits do not depend on threads.
struct RowBlocks {
  explicit RowBlocks(int64_t num_rows_)
      : num_rows(num_rows_),
        rows_per_block(std::max<int64_t>(32, (num_rows_ + 15) / 16)),
        num_blocks((num_rows_ + rows_per_block - 1) / rows_per_block) {}
  int64_t first(int64_t block) const { return block * rows_per_block; }
  int64_t last(int64_t block) const { return std::min(num_rows, first(block) + rows_per_block); }
  int64_t num_rows, rows_per_block, num_blocks;
};

/// Scratch of the calling thread: at least `count` values, uninitialised, valid until this thread's next call with the
/// same Tag. It never shrinks, so that training steps after the first ones allocate nothing. It starts at a cache line
/// (64 bytes), because vectors across two lines cost the norms' backward a third of its speed.
template <class Tag, class T>
T* thread_scratch(int64_t count) {
  constexpr uintptr_t kLine = 64;
  thread_local std::vector<char> buffer;
  const size_t bytes = static_cast<size_t>(count) * sizeof(T) + kLine;
  if (buffer.size() < bytes) buffer.resize(bytes);
  return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(buffer.data()) + kLine - 1) / kLine * kLine);
}

}  // namespace trireme::ops
