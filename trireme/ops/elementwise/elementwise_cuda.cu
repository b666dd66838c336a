// Additions, sums of columns and rotary positions.
#include "trireme/ops/cuda/rows-inl.h"

namespace trireme::ops::cuda {
namespace {

template <class T, int kSize>
struct Add {
  int64_t width, b_stride;
  T* y;
  const T *a, *b;
  __device__ void operator()(int64_t row, int64_t k) const {
    const int64_t at = row * width + k * kSize;
    auto sum = load<kSize>(a + at);
    const auto other = load<kSize>(b + row * b_stride + k * kSize);
    for (int i = 0; i < kSize; ++i) sum.of[i] = to_storage<T>(to_wide(sum.of[i]) + to_wide(other.of[i]));
    store(y + at, sum);
  }
};

constexpr int kRowsAtOnce = 8;  // of a block that sums columns: each of its warps has one, and a chunk per lane

/// partials [num_blocks, width]: block (x, y) sums the columns of its 32 chunks over rows_per_block rows.
template <class T, int kSize>
__global__ void __launch_bounds__(kWarp* kRowsAtOnce)
    column_sum_kernel(const T* x, int64_t rows, int64_t width, int64_t rows_per_block, Arithmetic<T>* partials) {
  using W = Arithmetic<T>;
  constexpr int kColumns = kWarp * kSize;
  __shared__ W shares[kRowsAtOnce][kColumns];
  const int64_t begin = int64_t{blockIdx.x} * kColumns, column = begin + threadIdx.x * kSize;
  const int64_t first = blockIdx.y * rows_per_block;
  const int64_t last = first + rows_per_block < rows ? first + rows_per_block : rows;
  W sums[kSize] = {};
  if (column < width) {
#pragma unroll 4
    for (int64_t row = first + threadIdx.y; row < last; row += kRowsAtOnce) {
      const auto v = load<kSize>(x + row * width + column);
      for (int i = 0; i < kSize; ++i) sums[i] += to_wide(v.of[i]);
    }
  }
  for (int i = 0; i < kSize; ++i) shares[threadIdx.y][threadIdx.x * kSize + i] = sums[i];
  __syncthreads();
  for (int c = threadIdx.y * kWarp + threadIdx.x; c < kColumns && begin + c < width; c += kWarp * kRowsAtOnce) {
    W sum = 0;
    for (int k = 0; k < kRowsAtOnce; ++k) sum += shares[k][c];
    partials[blockIdx.y * width + begin + c] = sum;
  }
}

/// Half-split pairs: (x_i, x_{i + d/2}) -> (x_i c - x_{i+d/2} s, x_{i+d/2} c + x_i s) for each rotated head.
template <class T, int kSize>
struct Rotate {
  using W = Arithmetic<T>;
  T* qkv;
  int64_t row_width, half, sequence;
  uint32_t chunks_per_half;
  const int64_t* positions;
  const W *cosine, *sine;
  W sign;

  __device__ void operator()(int64_t row, int64_t k) const {
    const uint32_t head = static_cast<uint32_t>(k) / chunks_per_half;
    const int64_t i = (static_cast<uint32_t>(k) - head * chunks_per_half) * kSize;
    const int64_t position = positions != nullptr ? positions[row] : row % sequence;
    const auto c = load<kSize>(cosine + position * half + i), s = load<kSize>(sine + position * half + i);
    T* low = qkv + row * row_width + head * 2 * half + i;
    auto a = load<kSize>(low), b = load<kSize>(low + half);
    for (int j = 0; j < kSize; ++j) {
      const W x = to_wide(a.of[j]), y = to_wide(b.of[j]), turn = sign * s.of[j];
      a.of[j] = to_storage<T>(x * c.of[j] - y * turn);
      b.of[j] = to_storage<T>(y * c.of[j] + x * turn);
    }
    store(low, a);
    store(low + half, b);
  }
};

}  // namespace

void Kernels::add(const AddArguments& a, int64_t rows) const {
  with_chunks(
      a.dtype,
      [&]<class T, int kSize>() {
        for_each_chunk("add", rows, a.width / kSize,
                       Add<T, kSize>{a.width, a.b_stride, static_cast<T*>(a.y), static_cast<const T*>(a.a),
                                     static_cast<const T*>(a.b)});
      },
      a.width, a.y, a.a, a.b);
}

void Kernels::column_sum(const ColumnSum& a, int64_t rows, const CudaGradient& to) const {
  if (a.width == 0) return;
  with_chunks(
      a.dtype,
      [&]<class T, int kSize>() {
        // Enough blocks for 8 on each multiprocessor, but of no less than 32 rows.
        const int64_t across = divided_up(a.width, kWarp * kSize);
        const int64_t wanted = divided_up(8 * kMultiprocessors, across);
        const int64_t rows_per_block = std::max<int64_t>(4 * kRowsAtOnce, divided_up(rows, wanted));
        const int64_t num_blocks = divided_up(rows, rows_per_block);
        const Scratch partials(num_blocks * a.width * static_cast<int64_t>(sizeof(Arithmetic<T>)));
        if (num_blocks > 0) {
          const dim3 grid(static_cast<uint32_t>(across), static_cast<uint32_t>(num_blocks));
          column_sum_kernel<T, kSize><<<grid, dim3(kWarp, kRowsAtOnce), 0, current_stream()>>>(
              static_cast<const T*>(a.x), rows, a.width, rows_per_block, partials.as<Arithmetic<T>>());
          check_launch("column_sum");
        }
        combine("column_sum", to, partials.as<void>(), a.width, num_blocks, a.width);
      },
      a.width, a.x);
}

void Kernels::rotary(const RotaryArguments& a, int64_t rows) const {
  with_chunks(
      a.dtype,
      [&]<class T, int kSize>() {
        using W = Arithmetic<T>;
        const int64_t chunks = a.half_dim / kSize;
        for_each_chunk(
            "rotary", rows, a.num_rotated_heads * chunks,
            Rotate<T, kSize>{static_cast<T*>(a.qkv), a.row_width, a.half_dim, a.sequence, static_cast<uint32_t>(chunks),
                             a.positions, static_cast<const W*>(a.cosine), static_cast<const W*>(a.sine),
                             static_cast<W>(a.inverse ? -1 : 1)});
      },
      a.half_dim, a.qkv, a.cosine, a.sine);
}

}  // namespace trireme::ops::cuda
