// Table look-up and its gradient. The gradient needs no atomic additions: a stable sort puts equal ids side by side, and
// the block at the first of them sums their rows in order of t.
#include <algorithm>
#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "trireme/ops/cuda/rows-inl.h"

namespace trireme::ops::cuda {
namespace {

constexpr int kRowsPerBlock = 8;  // of gather: a row is a warp's

template <class T, int kSize>
__global__ void __launch_bounds__(kWarp* kRowsPerBlock) gather_kernel(Gather args, int64_t rows) {
  using W = Arithmetic<T>;
  using P = Chunk<T, kSize>;
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kWarp;
  if (t >= rows) return;
  const int64_t id = args.ids[t], pieces = args.width / kSize;
  const P* from = id < 0 ? nullptr : static_cast<const P*>(args.table) + id * pieces;
  const P* addend = nullptr;
  if (args.addends != nullptr)
    addend =
        static_cast<const P*>(args.addends) + (args.places != nullptr ? args.places[t] : t % args.sequence) * pieces;
  P* to = static_cast<P*>(args.y) + t * pieces;
  const W scale = static_cast<W>(args.scale);
#pragma unroll 4
  for (int64_t i = threadIdx.x % kWarp; i < pieces; i += kWarp) {
    P row{}, added{}, y;
    if (from != nullptr) row = from[i];
    if (addend != nullptr) added = addend[i];
    for (int k = 0; k < kSize; ++k) {
      const W value = from != nullptr ? to_wide(row.of[k]) : W(0),
              sum = addend != nullptr ? to_wide(added.of[k]) : W(0);
      y.of[k] = to_storage<T>(fma(value, scale, sum));
    }
    to[i] = y;
  }
}

constexpr int kThreads = 128;
constexpr int kAhead = 8;  // rows that a block asks for before it adds the first

__global__ void keys_of(const int64_t* ids, int64_t num_tokens, uint32_t none, uint32_t* keys, int64_t* tokens) {
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (t >= num_tokens) return;
  keys[t] = ids[t] < 0 ? none : static_cast<uint32_t>(ids[t]);
  tokens[t] = t;
}

/// The rows of one id, at the first place of that id in the sorted order; at its other places there are none.
struct SortedRows {
  const uint32_t* keys;
  const int64_t* order;
  int64_t num_tokens;
  uint32_t none;  ///< the key of rows that are left out

  __device__ int64_t id(int64_t place) const {
    const uint32_t key = keys[place];
    return key == none || (place > 0 && keys[place - 1] == key) ? -1 : static_cast<int64_t>(key);
  }
  /// Rows `done`, done + 1, ... of the id, as many as there are; returns how many of them.
  __device__ int next(int64_t place, int64_t done, int64_t (&rows)[kAhead]) const {
    int count = 0;
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int64_t at = place + done + k;
      const bool is_one = at < num_tokens && keys[at] == keys[place];  // equal keys are neighbours
      if (is_one) rows[k] = order[at];
      count += is_one;
    }
    return count;
  }
};

/// The rows t = place, place + sequence, ...
struct RowsOfPlace {
  int64_t sequence, num_tokens;

  __device__ int64_t id(int64_t place) const { return place; }
  __device__ int next(int64_t place, int64_t done, int64_t (&rows)[kAhead]) const {
    int count = 0;
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      rows[k] = place + (done + k) * sequence;
      count += rows[k] < num_tokens;
    }
    return count;
  }
};

/// Writes sum * scale to kCount elements at `to`, or with `accumulate` adds it to them.
template <class Out, int kCount, class W>
__device__ void put(Out* to, const W (&sum)[kCount], W scale, bool accumulate) {
  constexpr int kSize = kCount == 1 ? 1 : Pack<Out>::kSize;
  static_assert(kCount % kSize == 0);
#pragma unroll
  for (int first = 0; first < kCount; first += kSize) {
    Chunk<Out, kSize> piece{};
    if (accumulate) piece = load<kSize>(to + first);
    for (int k = 0; k < kSize; ++k) {
      W value = multiplied(sum[first + k], scale);
      if (accumulate) value += to_wide(piece.of[k]);
      piece.of[k] = to_storage<Out>(value);
    }
    store(to + first, piece);
  }
}

/// Block (place, y): piece y * kThreads + thread of the row that the id at `place` has in the table.
template <class T, class Out, int kSize, class Rows>
__global__ void __launch_bounds__(kThreads) gather_sum_kernel(CudaGatherSum args, Rows rows_of) {
  using W = Arithmetic<T>;
  using P = Chunk<T, kSize>;
  const int64_t place = blockIdx.x, id = rows_of.id(place), pieces = args.width / kSize;
  const int64_t i = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (id < 0 || i >= pieces) return;
  W sum[kSize] = {};
  int count = kAhead;
  for (int64_t done = 0; count == kAhead; done += kAhead) {
    int64_t rows[kAhead];
    count = rows_of.next(place, done, rows);
    P ahead[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (k < count) ahead[k] = static_cast<const P*>(args.rows)[rows[k] * pieces + i];
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (k < count)
        for (int e = 0; e < kSize; ++e) sum[e] += to_wide(ahead[k].of[e]);
  }
  put(static_cast<Out*>(args.to.to) + id * args.width + i * kSize, sum, static_cast<W>(args.scale),
      args.to.accumulate);
}

template <class Rows>
void sum_rows(const CudaGatherSum& args, const Rows& rows_of, int64_t places) {
  with_chunks(
      args.dtype,
      [&]<class T, int kSize>() {
        const dim3 grid(static_cast<unsigned>(places),
                        static_cast<unsigned>(divided_up(args.width / kSize, kThreads)));
        if (args.to.dtype == args.dtype)
          gather_sum_kernel<T, T, kSize><<<grid, kThreads, 0, current_stream()>>>(args, rows_of);
        else
          gather_sum_kernel<T, Arithmetic<T>, kSize><<<grid, kThreads, 0, current_stream()>>>(args, rows_of);
        check_launch("gather_sum");
      },
      args.width, args.rows, args.to.to);
}

int64_t bytes_of(Storage storage) { return storage == Storage::kFloat64 ? 8 : storage == Storage::kFloat32 ? 4 : 2; }

void sum_by_ids(const CudaGatherSum& args) {
  const int64_t count = args.num_tokens, key_bytes = count * static_cast<int64_t>(sizeof(uint32_t));
  const auto none = static_cast<uint32_t>(args.num_rows);
  const Scratch keys(key_bytes), sorted(key_bytes), tokens(count * static_cast<int64_t>(sizeof(int64_t)));
  keys_of<<<static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads, 0, current_stream()>>>(
      args.ids, count, none, keys.as<uint32_t>(), tokens.as<int64_t>());
  check_launch("gather_sum: keys");
  const auto sort = [&](void* temporary, size_t& bytes) {
    check(cub::DeviceRadixSort::SortPairs(temporary, bytes, keys.as<uint32_t>(), sorted.as<uint32_t>(),
                                          tokens.as<int64_t>(), args.order, count, 0, std::bit_width(none),
                                          current_stream()),
          "gather_sum: sorting");
  };
  size_t bytes = 0;
  sort(nullptr, bytes);
  // With a null pointer, sort would only compute the size again.
  const Scratch temporary(std::max<int64_t>(1, static_cast<int64_t>(bytes)));
  sort(temporary.as<void>(), bytes);
  sum_rows(args, SortedRows{sorted.as<uint32_t>(), args.order, count, none}, count);
}

}  // namespace

void Kernels::gather(const Gather& args, int64_t rows) const {
  if (rows == 0 || args.width == 0) return;
  const auto blocks = static_cast<unsigned>((rows + kRowsPerBlock - 1) / kRowsPerBlock);
  with_chunks(
      args.dtype,
      [&]<class T, int kSize>() {
        gather_kernel<T, kSize><<<blocks, kWarp * kRowsPerBlock, 0, current_stream()>>>(args, rows);
      },
      args.width, args.y, args.table, args.addends);
  check_launch("gather");
}

void Kernels::gather_sum(const CudaGatherSum& args) const {
  const int64_t elements = args.num_rows * args.width;
  if (elements == 0) return;
  // For rows whose id does not occur; the others are overwritten.
  if (!args.to.accumulate)
    check(cudaMemsetAsync(args.to.to, 0, static_cast<size_t>(elements * bytes_of(args.to.dtype)), current_stream()),
          "gather_sum: zeros");
  if (args.num_tokens == 0) return;
  if (args.ids != nullptr) return sum_by_ids(args);
  const int64_t places = std::min({args.sequence, args.num_rows, args.num_tokens});
  sum_rows(args, RowsOfPlace{args.sequence, args.num_tokens}, places);
}

}  // namespace trireme::ops::cuda
