// Measures the limits of this machine: arithmetic on registers alone, and memory traffic. Every benchmark prints its
// figure beside one of these limits. The limit is measured in the same run, because clock rates and other load change
// between runs.
#pragma once

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace trireme::machine {

/// Floating-point operations a second of independent multiply-adds on the widest registers of this processor, summed
/// over `threads` threads that run at once. A multiply-add counts 2. No matrix product is faster. For bfloat16 these
/// are products of tiles on matrix units (AMX), or on AMD processors AVX512-BF16 dot products, or else float32. For
/// float32 and float64 they are fused multiply-adds (AVX-512, AVX2, portable).
///
/// Cost      the best of 40 runs of about 1 ms, or of fewer: 20 in a row that are not 0.2 % faster end them
double register_loop_flops(at::ScalarType dtype, int threads);

/// The same, one run at a time on LibTorch's threads. So a benchmark can alternate runs of the limit and runs of the
/// operation that it limits.
class RegisterPasses {
 public:
  RegisterPasses(at::ScalarType dtype, int threads);
  double flops() const;  ///< operations a second of one run of about 1 ms

 private:
  at::ScalarType dtype_;
  int threads_;
  int64_t rounds_;  ///< of the loop, for one run
};

/// "registers" or "AMX tiles": what the loop of this dtype computes on.
const char* register_loop_place(at::ScalarType dtype);

/// Bytes a second of a copy: bytes read plus bytes written, so 64 MiB copied are 128 MiB moved. A plain store first
/// fetches the line that it overwrites (write-allocate); this traffic does not count. So three ways to copy are timed;
/// an element-wise kernel could reach the best one.
struct CopyBandwidth {
  double library = 0;  ///< memcpy
  double plain = 0;  ///< loop of vector loads and stores
  double past_caches = 0;  ///< loop with non-temporal stores, which fetch nothing; 0 where the processor has none
  double best() const { return std::max({library, plain, past_caches}); }
};

/// Copies on `threads` threads at once, each between its own two buffers of `bytes`, and sums over threads. With
/// `bytes` 0 the threads together copy four times their last-level caches (at least 64 MiB, at most 4 GiB), so that
/// memory is measured. Sizes are rounded up to 4 KiB.
///
/// Cost      for each way, the best of 5 runs of at least 1 ms; buffers are touched before
/// Errors    Error if there is no memory for the buffers
CopyBandwidth measure_copy(int threads, int64_t bytes = 0);

/// Bytes a second, read plus written, of a pass that changes memory in place: the limit of updates. Such a pass needs
/// every cache line that it fetches. One buffer a thread; otherwise as measure_copy.
double update_bandwidth(int threads, int64_t bytes = 0);

/// Bytes a second of a pass that only reads: the limit of sums. One buffer a thread; otherwise as measure_copy. A core
/// can wait for only so many cache lines at once. So it reads about 30 GB/s (Zen 4), three quarters of what a copy
/// reads and writes together. Other ways to read were not faster: 2 to 8 places at once, a page or a share of the
/// buffer apart (14 to 29 GB/s); prefetching 0.5 to 16 KiB ahead into any cache (26 to 32, within the noise); bursts of
/// 1 or 4 lines. Small pages cost a third. Writing alone is not faster (26).
double read_bandwidth(int threads, int64_t bytes = 0);

/// The passes above, one at a time over the same buffers, on LibTorch's threads. So a benchmark can alternate passes of
/// the limit and passes of the operation that it limits. Each call is one pass of all threads and returns bytes moved a
/// second.
///
/// Cost      the constructor touches 2 buffers a thread (`bytes` as in measure_copy) and tries every way to copy twice
class MemoryPasses {
 public:
  explicit MemoryPasses(int threads, int64_t bytes = 0);
  ~MemoryPasses();
  MemoryPasses(const MemoryPasses&) = delete;

  double copy();  ///< in the way that was fastest in the constructor
  double update();
  double read();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::machine
