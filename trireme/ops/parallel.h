// Splits a range of rows over LibTorch's threads. Ranks usually run one thread each, where this is a plain
// call. at::parallel_for is not used: without -fopenmp it is silently serial, with it a second pool may start.
// No result may depend on how a range is split: kernels are row-wise, and sums over rows use RowBlocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace trireme::ops {

/// Calls body(first, last, context) over disjoint pieces that cover [0, num_rows); pieces of less than `grain`
/// rows are not made. The body must not throw.
void parallel_range(int64_t num_rows, int64_t grain, void (*body)(int64_t first, int64_t last, void* context),
                    void* context);

template <class Body>
void parallel_rows(int64_t num_rows, int64_t grain, const Body& body) {
  parallel_range(
      num_rows, grain,
      [](int64_t first, int64_t last, void* context) { (*static_cast<const Body*>(context))(first, last); },
      const_cast<Body*>(&body));
}

/// Rows of `width` elements that make a piece worth a thread's while.
inline int64_t row_grain(int64_t width) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, width)); }

/// How a sum over rows is cut: at most 16 blocks, a function of the number of rows alone. Each block is summed
/// by one thread in order of rows, and blocks are added in order, so that the bits do not depend on threads.
struct RowBlocks {
  explicit RowBlocks(int64_t num_rows_)
      : num_rows(num_rows_),
        rows_per_block(std::max<int64_t>(32, (num_rows_ + 15) / 16)),
        num_blocks((num_rows_ + rows_per_block - 1) / rows_per_block) {}
  int64_t first(int64_t block) const { return block * rows_per_block; }
  int64_t last(int64_t block) const { return std::min(num_rows, first(block) + rows_per_block); }
  int64_t num_rows;
  int64_t rows_per_block;
  int64_t num_blocks;
};

/// Scratch of the calling thread: at least `count` values, uninitialised, valid until this thread's next call
/// with the same Tag. It only ever grows, so that a training step in its steady state allocates nothing. It begins with
/// a cache line: vectors that lie across two cost the norms' backward a third of its speed.
template <class Tag, class T>
T* thread_scratch(int64_t count) {
  constexpr uintptr_t kLine = 64;
  thread_local std::vector<char> buffer;
  const size_t bytes = static_cast<size_t>(count) * sizeof(T) + kLine;
  if (buffer.size() < bytes) buffer.resize(bytes);
  return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(buffer.data()) + kLine - 1) / kLine * kLine);
}

}  // namespace trireme::ops
