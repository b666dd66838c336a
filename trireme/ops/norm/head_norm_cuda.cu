// Query-key norm. A head is shared by as many lanes of a warp as it has chunks, at most all of them. With more chunks, each
// lane keeps several in registers, and reads the rest of the head again.
//
// Backward: a block processes a range of heads. Each lane keeps its columns' sums for both weights' gradients in
// registers; at the end the block adds them up and writes one row of partial sums.
#include "trireme/ops/cuda/rows-inl.h"

namespace trireme::ops::cuda {
namespace {

constexpr int kThreads = 256, kBlocksResident = 3;

/// One head of a row, of the calling group.
template <class T>
struct Head {
  __device__ Head(const HeadNorm& a, int64_t item) {
    const int64_t heads = a.num_heads + a.num_kv_heads, row = item / heads, h = item - row * heads;
    is_q = h < a.num_heads;
    qkv = static_cast<T*>(a.qkv) + row * a.row_width + h * a.head_dim;
    raw = a.raw == nullptr ? nullptr : static_cast<T*>(a.raw) + item * a.head_dim;
    rstd = static_cast<Arithmetic<T>*>(a.rstd) + item;
    w = static_cast<const T*>(is_q ? a.w_q : a.w_k);
  }
  bool is_q;
  T *qkv, *raw;
  Arithmetic<T>* rstd;
  const T* w;
};

template <class T, int kSize, int kLanes, int kKept>
__global__ void __launch_bounds__(kThreads) forward_kernel(HeadNorm a, int64_t num_items) {
  using W = Arithmetic<T>;
  constexpr int kStep = kLanes * kSize;
  const int64_t item = int64_t{blockIdx.x} * (blockDim.x / kLanes) + threadIdx.x / kLanes;
  // Lanes without a head take part in the warp's sums, too.
  const Head<T> head(a, item < num_items ? item : 0);
  const int lane = static_cast<int>(threadIdx.x) % kLanes, begin = lane * kSize;
  const int d = item < num_items ? static_cast<int>(a.head_dim) : 0;

  Chunk<T, kSize> kept[kKept];
#pragma unroll
  for (int k = 0; k < kKept; ++k)
    if (begin + k * kStep < d) kept[k] = load<kSize>(head.qkv + begin + k * kStep);
  const auto each = [&](const auto& body) {
#pragma unroll
    for (int k = 0; k < kKept; ++k)
      if (begin + k * kStep < d) body(begin + k * kStep, kept[k]);
    for (int column = begin + kKept * kStep; column < d; column += kStep)
      body(column, load<kSize>(head.qkv + column));
  };
  W squares = 0;
  each([&](int, const Chunk<T, kSize>& v) {
    for (int i = 0; i < kSize; ++i) squares += to_wide(v.of[i]) * to_wide(v.of[i]);
  });
  squares = warp_sum<kLanes>(squares);
  if (item >= num_items) return;
  const W rstd = 1 / sqrt(squares / static_cast<W>(d) + static_cast<W>(a.eps));
  if (lane == 0) *head.rstd = rstd;
  const W offset = static_cast<W>(a.weight_offset);
  each([&](int column, const Chunk<T, kSize>& v) {
    const auto weight = load<kSize>(head.w + column);
    Chunk<T, kSize> out;
    for (int i = 0; i < kSize; ++i)
      out.of[i] = to_storage<T>(to_wide(v.of[i]) * rstd * (to_wide(weight.of[i]) + offset));
    if (head.raw != nullptr) store(head.raw + column, v);
    store(head.qkv + column, out);
  });
}

/// With n = raw rstd and g = dy (offset + w):  dx = rstd (g - n mean(g n)), and dw gets dy n.
/// Block k processes items_per_block heads from k items_per_block on, and writes row k of the partials [num_blocks, 2,
/// d]: those of dw_q, then those of dw_k. If a head has more chunks than are kept, the partials must be zeros before,
/// and a block is one warp.
template <class T, int kSize, int kLanes, int kKept>
__global__ void __launch_bounds__(kThreads, kBlocksResident)
    backward_kernel(HeadNorm a, int64_t num_items, int64_t items_per_block, Arithmetic<T>* partials) {
  using W = Arithmetic<T>;
  constexpr int kStep = kLanes * kSize;
  __shared__ W shared[2][kKept * kStep];
  const int64_t first = blockIdx.x * items_per_block;
  const int64_t last = first + items_per_block < num_items ? first + items_per_block : num_items;
  const int groups = static_cast<int>(blockDim.x) / kLanes, group = static_cast<int>(threadIdx.x) / kLanes;
  const int begin = static_cast<int>(threadIdx.x) % kLanes * kSize, head_dim = static_cast<int>(a.head_dim);
  const W offset = static_cast<W>(a.weight_offset);
  W* dw_q = partials + blockIdx.x * 2 * a.head_dim;
  W* dw_k = dw_q + a.head_dim;
  W q_sums[kKept * kSize] = {}, k_sums[kKept * kSize] = {};

  for (int64_t turn = first; turn < last; turn += groups) {  // the same turns for all of a block
    const int64_t item = turn + group;
    const Head<T> head(a, item < last ? item : first);
    const int d = item < last ? head_dim : 0;
    const W rstd = *head.rstd;
    Chunk<T, kSize> raw[kKept], dy[kKept];
#pragma unroll
    for (int k = 0; k < kKept; ++k)
      if (begin + k * kStep < d) {
        raw[k] = load<kSize>(head.raw + begin + k * kStep);
        dy[k] = load<kSize>(head.qkv + begin + k * kStep);
      }
    W sum = 0;  // of g n
    const auto add = [&](int column, const Chunk<T, kSize>& v, const Chunk<T, kSize>& grad) {
      const auto weight = load<kSize>(head.w + column);
      for (int i = 0; i < kSize; ++i)
        sum += to_wide(grad.of[i]) * (to_wide(weight.of[i]) + offset) * (to_wide(v.of[i]) * rstd);
    };
#pragma unroll
    for (int k = 0; k < kKept; ++k)
      if (begin + k * kStep < d) add(begin + k * kStep, raw[k], dy[k]);
    for (int column = begin + kKept * kStep; column < d; column += kStep)
      add(column, load<kSize>(head.raw + column), load<kSize>(head.qkv + column));
    const W slope = -rstd * warp_sum<kLanes>(sum) / static_cast<W>(head_dim);

    const auto write = [&](int column, const Chunk<T, kSize>& v, const Chunk<T, kSize>& grad, W(&products)[kSize]) {
      const auto weight = load<kSize>(head.w + column);
      Chunk<T, kSize> out;
      for (int i = 0; i < kSize; ++i) {
        const W n = to_wide(v.of[i]) * rstd, g = to_wide(grad.of[i]);
        products[i] = g * n;
        out.of[i] = to_storage<T>(g * (to_wide(weight.of[i]) + offset) * rstd + n * slope);
      }
      store(head.qkv + column, out);
    };
    W products[kSize];
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      if (begin + k * kStep >= d) continue;
      write(begin + k * kStep, raw[k], dy[k], products);
      for (int i = 0; i < kSize; ++i) {
        q_sums[k * kSize + i] += head.is_q ? products[i] : 0;
        k_sums[k * kSize + i] += head.is_q ? 0 : products[i];
      }
    }
    for (int column = begin + kKept * kStep; column < d; column += kStep) {
      // This lane alone reads and writes these sums.
      write(column, load<kSize>(head.raw + column), load<kSize>(head.qkv + column), products);
      W* sums = (head.is_q ? dw_q : dw_k) + column;
      for (int i = 0; i < kSize; ++i) sums[i] += products[i];
    }
  }

  for (int turn = 0; turn < groups; ++turn) {
    if (group == turn)
      for (int k = 0; k < kKept; ++k)
        for (int i = 0; i < kSize; ++i) {
          const int at = begin + k * kStep + i;
          shared[0][at] = turn == 0 ? q_sums[k * kSize + i] : shared[0][at] + q_sums[k * kSize + i];
          shared[1][at] = turn == 0 ? k_sums[k * kSize + i] : shared[1][at] + k_sums[k * kSize + i];
        }
    __syncthreads();
  }
  for (int column = static_cast<int>(threadIdx.x); column < kKept * kStep && column < head_dim;
       column += static_cast<int>(blockDim.x)) {
    dw_q[column] = shared[0][column];
    dw_k[column] = shared[1][column];
  }
}

/// body.template operator()<T, kSize, kLanes, kKept>()
template <class Body>
void with_group(const HeadNorm& a, const Body& body) {
  with_chunks(
      a.dtype,
      [&]<class T, int kSize>() {
        const int64_t count = a.head_dim / kSize;
        if constexpr (kSize > 1) {
          if (count <= 8) return body.template operator()<T, kSize, 8, 1>();
          if (count <= 16) return body.template operator()<T, kSize, 16, 1>();
          if (count <= 32) return body.template operator()<T, kSize, 32, 1>();
        }
        body.template operator()<T, kSize, 32, 4>();
      },
      a.head_dim, a.qkv, a.raw, a.w_q, a.w_k);
}

}  // namespace

void Kernels::head_norm_forward(const HeadNorm& a, int64_t rows) const {
  const int64_t num_items = rows * (a.num_heads + a.num_kv_heads);
  if (num_items == 0 || a.head_dim == 0) return;
  with_group(a, [&]<class T, int kSize, int kLanes, int kKept>() {
    const auto num_blocks = static_cast<uint32_t>(divided_up(num_items, kThreads / kLanes));
    forward_kernel<T, kSize, kLanes, kKept><<<num_blocks, kThreads, 0, current_stream()>>>(a, num_items);
    check_launch("head_norm_forward");
  });
}

void Kernels::head_norm_backward(const HeadNorm& a, int64_t rows, const CudaGradient& dw_q, const CudaGradient& dw_k) const {
  if (a.head_dim == 0) return;
  with_group(a, [&]<class T, int kSize, int kLanes, int kKept>() {
    using W = Arithmetic<T>;
    const int64_t num_items = rows * (a.num_heads + a.num_kv_heads);
    const bool all_kept = a.head_dim <= kLanes * kSize * kKept;
    const int threads = all_kept ? kThreads : kWarp, groups = threads / kLanes;
    // As many blocks as run at once, but each with 8 turns or more.
    const int64_t wanted = kMultiprocessors * kBlocksResident * (kThreads / threads);
    const int64_t items_per_block = std::max<int64_t>(8 * groups, divided_up(num_items, wanted));
    const int64_t num_blocks = divided_up(num_items, items_per_block), stride = 2 * a.head_dim;
    const Scratch partials(num_blocks * stride * static_cast<int64_t>(sizeof(W)));
    if (num_blocks > 0) {
      if (!all_kept) {
        cudaMemsetAsync(partials.as<W>(), 0, static_cast<size_t>(num_blocks * stride) * sizeof(W), current_stream());
        check_launch("head_norm_backward");
      }
      backward_kernel<T, kSize, kLanes, kKept><<<static_cast<uint32_t>(num_blocks), threads, 0, current_stream()>>>(
          a, num_items, items_per_block, partials.as<W>());
      check_launch("head_norm_backward");
    }
    combine("head_norm_backward", dw_q, partials.as<W>(), stride, num_blocks, a.head_dim);
    combine("head_norm_backward", dw_k, partials.as<W>() + a.head_dim, stride, num_blocks, a.head_dim);
  });
}

}  // namespace trireme::ops::cuda
