// RMSNorm and LayerNorm. A team of threads, a warp or a block, shares a row. Each thread keeps its chunks of the row in
// registers from the sums over the row to the results, so that memory is read once. The rest of a longer row is read
// again.
//
// Backward: a team processes a range of rows and keeps its columns' sums for the weights' gradients in registers. The
// partial sums of all teams are combined at the end.
#include "trireme/ops/cuda/rows-inl.h"

namespace trireme::ops::cuda {
namespace {

template <int kThreads>
struct Team {
  static constexpr int kPerBlock = kThreads == kWarp ? 8 : 1;
  static constexpr int kBlock = kThreads * kPerBlock;
  static constexpr int kWarps = kThreads / kWarp;
};

/// The sum of each of x over a team's threads, on each of them. If a team is a block, its calls alternate between two
/// `shared`: when the next sums are complete, all threads have read the last ones.
template <int kThreads, int kCount, class W>
__device__ void team_sums(W (&x)[kCount], W* shared) {
  constexpr int kWarps = Team<kThreads>::kWarps;
  for (W& v : x) v = warp_sum(v);
  if constexpr (kWarps > 1) {
    if (threadIdx.x % kWarp == 0)
      for (int i = 0; i < kCount; ++i) shared[i * kWarps + threadIdx.x / kWarp] = x[i];
    __syncthreads();
    for (int i = 0; i < kCount; ++i) {
      x[i] = 0;
      for (int warp = 0; warp < kWarps; ++warp) x[i] += shared[i * kWarps + warp];
    }
  }
}

constexpr int kForwardKept = 4;  // chunks of a row that a thread keeps

template <class T, int kSize, int kThreads, bool kCentered>
__global__ void __launch_bounds__(Team<kThreads>::kBlock) forward_kernel(NormForward a, int64_t rows) {
  using W = Arithmetic<T>;
  constexpr int kStep = kThreads * kSize, kKept = kForwardKept;
  __shared__ W shared[2][Team<kThreads>::kWarps];
  const int64_t row = int64_t{blockIdx.x} * Team<kThreads>::kPerBlock + threadIdx.x / kThreads;
  if (row >= rows) return;  // the whole team
  const int width = static_cast<int>(a.width), lane = static_cast<int>(threadIdx.x) % kThreads, begin = lane * kSize;
  const T* x = static_cast<const T*>(a.x) + row * width;
  const T* w = static_cast<const T*>(a.w);
  T* y = static_cast<T*>(a.y) + row * width;

  Chunk<T, kSize> kept[kKept];
#pragma unroll
  for (int k = 0; k < kKept; ++k)
    if (begin + k * kStep < width) kept[k] = load<kSize>(x + begin + k * kStep);
  if (a.sum != nullptr) {
    const T* residual = static_cast<const T*>(a.residual) + row * width;
    T* sum = static_cast<T*>(a.sum) + row * width;
    const auto add = [](Chunk<T, kSize>& v, const Chunk<T, kSize>& r) {
      for (int i = 0; i < kSize; ++i) v.of[i] = to_storage<T>(to_wide(v.of[i]) + to_wide(r.of[i]));
    };
    Chunk<T, kSize> other[kKept];
#pragma unroll
    for (int k = 0; k < kKept; ++k)
      if (begin + k * kStep < width) other[k] = load<kSize>(residual + begin + k * kStep);
#pragma unroll
    for (int k = 0; k < kKept; ++k)
      if (begin + k * kStep < width) {
        add(kept[k], other[k]);
        store(sum + begin + k * kStep, kept[k]);
      }
    for (int column = begin + kKept * kStep; column < width; column += kStep) {
      auto v = load<kSize>(x + column);
      add(v, load<kSize>(residual + column));
      store(sum + column, v);
    }
    x = sum;  // each thread reads only what it has written
  }

  const auto each = [&](const auto& body) {
#pragma unroll
    for (int k = 0; k < kKept; ++k)
      if (begin + k * kStep < width) body(begin + k * kStep, kept[k]);
    for (int column = begin + kKept * kStep; column < width; column += kStep) body(column, load<kSize>(x + column));
  };
  W mean = 0;
  if constexpr (kCentered) {
    W sums[1] = {0};
    each([&](int, const Chunk<T, kSize>& v) {
      for (int i = 0; i < kSize; ++i) sums[0] += to_wide(v.of[i]);
    });
    team_sums<kThreads>(sums, shared[0]);
    mean = sums[0] / static_cast<W>(width);
  }
  W squares[1] = {0};
  each([&](int, const Chunk<T, kSize>& v) {
    for (int i = 0; i < kSize; ++i) {
      const W distance = to_wide(v.of[i]) - mean;
      squares[0] += distance * distance;
    }
  });
  team_sums<kThreads>(squares, shared[1]);
  const W rstd = 1 / sqrt(squares[0] / static_cast<W>(width) + static_cast<W>(a.eps));
  if (lane == 0) {
    static_cast<W*>(a.rstd)[row] = rstd;
    if constexpr (kCentered) static_cast<W*>(a.mean)[row] = mean;
  }

  const W offset = static_cast<W>(a.weight_offset);
  each([&](int column, const Chunk<T, kSize>& v) {
    const auto weight = load<kSize>(w + column);
    Chunk<T, kSize> out;
    if constexpr (kCentered) {
      const auto bias = load<kSize>(static_cast<const T*>(a.b) + column);
      for (int i = 0; i < kSize; ++i)
        out.of[i] =
            to_storage<T>((to_wide(v.of[i]) - mean) * rstd * to_wide(weight.of[i]) + to_wide(bias.of[i]));
    } else {
      for (int i = 0; i < kSize; ++i)
        out.of[i] = to_storage<T>(to_wide(v.of[i]) * rstd * (to_wide(weight.of[i]) + offset));
    }
    store(y + column, out);
  });
}

constexpr int kBackwardKept = 2;
constexpr int kResident = 512;  // threads of a multiprocessor, so that each may have 128 registers

/// What a thread keeps of a row.
template <class T, int kSize, int kThreads, bool kCentered>
struct KeptRow {
  Chunk<T, kSize> x[kBackwardKept], dy[kBackwardKept], residual[kBackwardKept];
  Arithmetic<T> mean, rstd;

  __device__ void read(const NormBackward& a, int64_t row, int begin, int width) {
    rstd = static_cast<const Arithmetic<T>*>(a.rstd)[row];
    mean = kCentered ? static_cast<const Arithmetic<T>*>(a.mean)[row] : 0;
#pragma unroll
    for (int k = 0; k < kBackwardKept; ++k) {
      const int column = begin + k * kThreads * kSize;
      if (column >= width) continue;
      const int64_t at = row * width + column;
      x[k] = load<kSize>(static_cast<const T*>(a.x) + at);
      dy[k] = load<kSize>(static_cast<const T*>(a.dy) + at);
      if (a.d_residual != nullptr) residual[k] = load<kSize>(static_cast<const T*>(a.d_residual) + at);
    }
  }
};

/// With n = (x - mean) rstd and g = dy w:  dx = rstd (g - mean(g) - n mean(g n));  without centering mean(g) is absent.
/// Team k does rows_per_team rows from k rows_per_team on, and leaves row k of the partials [num_teams, width].
template <class T, int kSize, int kThreads, bool kCentered>
__global__ void __launch_bounds__(Team<kThreads>::kBlock, kResident / Team<kThreads>::kBlock)
    backward_kernel(NormBackward a, int64_t rows, int64_t rows_per_team, Arithmetic<T>* dw_partials,
                    Arithmetic<T>* db_partials) {
  using W = Arithmetic<T>;
  using Elements = Chunk<T, kSize>;
  constexpr int kStep = kThreads * kSize, kKept = kBackwardKept;
  __shared__ W shared[2][2 * Team<kThreads>::kWarps];
  const int64_t team = int64_t{blockIdx.x} * Team<kThreads>::kPerBlock + threadIdx.x / kThreads;
  const int64_t first = team * rows_per_team, last = first + rows_per_team < rows ? first + rows_per_team : rows;
  if (first >= last) return;  // the whole team
  const int width = static_cast<int>(a.width), begin = static_cast<int>(threadIdx.x) % kThreads * kSize;
  const T *w = static_cast<const T*>(a.w), *b = static_cast<const T*>(a.b);
  const W offset = static_cast<W>(a.weight_offset);
  W* dw = dw_partials + team * width;
  W* db = kCentered ? db_partials + team * width : nullptr;
  Chunk<W, kSize> dw_sums[kKept] = {}, db_sums[kKept] = {};

  for (int64_t row = first; row < last; ++row) {
    KeptRow<T, kSize, kThreads, kCentered> kept;
    kept.read(a, row, begin, width);
    const T *x = static_cast<const T*>(a.x) + row * width, *dy = static_cast<const T*>(a.dy) + row * width;
    const T* residual = a.d_residual == nullptr ? nullptr : static_cast<const T*>(a.d_residual) + row * width;
    T *dx = static_cast<T*>(a.dx) + row * width, *y = static_cast<T*>(a.y) + row * width;
    const W mean = kept.mean, rstd = kept.rstd;

    W sums[kCentered ? 2 : 1] = {};  // of g n and g
    const auto sum = [&](int column, const Elements& v, const Elements& grad) {
      const auto weight = load<kSize>(w + column);
      for (int i = 0; i < kSize; ++i) {
        const W g = to_wide(grad.of[i]) * (to_wide(weight.of[i]) + offset);
        sums[0] += g * ((to_wide(v.of[i]) - mean) * rstd);
        if constexpr (kCentered) sums[1] += g;
      }
    };
#pragma unroll
    for (int k = 0; k < kKept; ++k)
      if (begin + k * kStep < width) sum(begin + k * kStep, kept.x[k], kept.dy[k]);
    for (int column = begin + kKept * kStep; column < width; column += kStep)
      sum(column, load<kSize>(x + column), load<kSize>(dy + column));
    team_sums<kThreads>(sums, shared[(row - first) % 2]);
    const W slope = -rstd * sums[0] / static_cast<W>(width);
    const W constant = kCentered ? -rstd * sums[kCentered ? 1 : 0] / static_cast<W>(width) : 0;

    const auto write = [&](int column, const Elements& v, const Elements& grad, const Elements& rest,
                           Chunk<W, kSize>& dw_sum, Chunk<W, kSize>& db_sum) {
      const auto weight = load<kSize>(w + column);
      Elements bias, out, again;
      if constexpr (kCentered) bias = load<kSize>(b + column);
      for (int i = 0; i < kSize; ++i) {
        const W full = to_wide(weight.of[i]) + offset, n = (to_wide(v.of[i]) - mean) * rstd, d = to_wide(grad.of[i]);
        W gradient = d * full * rstd + (n * slope + constant);
        if (residual != nullptr) gradient += to_wide(rest.of[i]);
        out.of[i] = to_storage<T>(gradient);
        again.of[i] = to_storage<T>(kCentered ? n * full + to_wide(bias.of[i]) : n * full);
        dw_sum.of[i] += d * n;
        if constexpr (kCentered) db_sum.of[i] += d;
      }
      store(dx + column, out);
      store(y + column, again);
    };
#pragma unroll
    for (int k = 0; k < kKept; ++k)
      if (begin + k * kStep < width)
        write(begin + k * kStep, kept.x[k], kept.dy[k], kept.residual[k], dw_sums[k], db_sums[k]);
    for (int column = begin + kKept * kStep; column < width; column += kStep) {
      // The sums of these columns are in the partials, which only this thread reads and writes.
      Chunk<W, kSize> dw_sum = {}, db_sum = {};
      if (row > first) {
        dw_sum = load<kSize>(dw + column);
        if constexpr (kCentered) db_sum = load<kSize>(db + column);
      }
      const auto v = load<kSize>(x + column), grad = load<kSize>(dy + column);
      write(column, v, grad, residual == nullptr ? v : load<kSize>(residual + column), dw_sum, db_sum);
      store(dw + column, dw_sum);
      if constexpr (kCentered) store(db + column, db_sum);
    }
  }
#pragma unroll
  for (int k = 0; k < kKept; ++k)
    if (begin + k * kStep < width) {
      store(dw + begin + k * kStep, dw_sums[k]);
      if constexpr (kCentered) store(db + begin + k * kStep, db_sums[k]);
    }
}

/// body.template operator()<kThreads>() for the first team whose threads can keep `count` chunks, or the last team.
template <int kKept, int kFirst, int... kOthers, class Body>
void with_team(int64_t count, const Body& body) {
  if constexpr (sizeof...(kOthers) > 0)
    if (count > int64_t{kFirst} * kKept) return with_team<kKept, kOthers...>(count, body);
  body.template operator()<kFirst>();
}

/// Whether to choose among many teams: not for float64 and odd widths, which training hardly uses.
template <class T, int kSize>
constexpr bool kTuned = kSize > 1 && !std::is_same_v<T, double>;

template <bool kCentered>
void forward(const char* what, const NormForward& a, int64_t rows) {
  if (rows == 0) return;
  with_chunks(
      a.dtype,
      [&]<class T, int kSize>() {
        const auto launch = [&]<int kThreads>() {
          const auto num_blocks = static_cast<uint32_t>(divided_up(rows, Team<kThreads>::kPerBlock));
          forward_kernel<T, kSize, kThreads, kCentered>
              <<<num_blocks, Team<kThreads>::kBlock, 0, current_stream()>>>(a, rows);
          check_launch(what);
        };
        if constexpr (kTuned<T, kSize>)
          with_team<kForwardKept, 32, 128, 256, 512, 1024>(a.width / kSize, launch);
        else
          with_team<kForwardKept, 32, 256>(a.width / kSize, launch);
      },
      a.width, a.sum, a.y, a.x, a.residual, a.w, a.b);
}

template <bool kCentered>
void backward(const char* what, const NormBackward& a, int64_t rows, const CudaGradient& dw, const CudaGradient& db) {
  with_chunks(
      a.dtype,
      [&]<class T, int kSize>() {
        using W = Arithmetic<T>;
        const auto launch = [&]<int kThreads>() {
          // As many teams as can run at once, each with at least 4 rows.
          const int64_t wanted = kMultiprocessors * kResident / kThreads;
          const int64_t rows_per_team = std::max<int64_t>(4, divided_up(rows, wanted));
          const int64_t num_teams = divided_up(rows, rows_per_team);
          const Scratch partials((kCentered ? 2 : 1) * num_teams * a.width * static_cast<int64_t>(sizeof(W)));
          W *dw_partials = partials.as<W>(), *db_partials = kCentered ? dw_partials + num_teams * a.width : nullptr;
          if (num_teams > 0) {
            const auto num_blocks = static_cast<uint32_t>(divided_up(num_teams, Team<kThreads>::kPerBlock));
            backward_kernel<T, kSize, kThreads, kCentered>
                <<<num_blocks, Team<kThreads>::kBlock, 0, current_stream()>>>(a, rows, rows_per_team, dw_partials,
                                                                              db_partials);
            check_launch(what);
          }
          combine(what, dw, dw_partials, a.width, num_teams, a.width);
          if constexpr (kCentered) combine(what, db, db_partials, a.width, num_teams, a.width);
        };
        if constexpr (kTuned<T, kSize>)
          with_team<kBackwardKept, 32, 128, 256, 512>(a.width / kSize, launch);
        else
          with_team<kBackwardKept, 32, 256>(a.width / kSize, launch);
      },
      a.width, a.dx, a.y, a.dy, a.x, a.w, a.b, a.d_residual);
}

}  // namespace

void Kernels::rms_norm_forward(const NormForward& arguments, int64_t rows) const {
  forward<false>("rms_norm_forward", arguments, rows);
}
void Kernels::layer_norm_forward(const NormForward& arguments, int64_t rows) const {
  forward<true>("layer_norm_forward", arguments, rows);
}
void Kernels::rms_norm_backward(const NormBackward& arguments, int64_t rows, const CudaGradient& dw) const {
  backward<false>("rms_norm_backward", arguments, rows, dw, {});
}
void Kernels::layer_norm_backward(const NormBackward& arguments, int64_t rows, const CudaGradient& dw, const CudaGradient& db) const {
  backward<true>("layer_norm_backward", arguments, rows, dw, db);
}

}  // namespace trireme::ops::cuda
