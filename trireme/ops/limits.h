// What this machine can do at most, measured: arithmetic on registers alone, and memory moved. Every benchmark prints
// its figure beside one of these, measured in the same run, because clock rates and neighbours change between runs.
#pragma once

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace trireme::ops {

/// Floating-point operations a second (a multiply-add counts 2) of independent multiply-adds on registers, in the
/// widest registers this processor has: bfloat16 by products of tiles where it has matrix units (AMX), by AVX512-BF16
/// dot products where it has those, else by float32; float32 and float64 by fused multiply-adds (AVX-512, AVX2,
/// portable). Sum over `threads` threads that run at once. No product of matrices is faster.
///
/// Cost      the best of 40 runs of about 1 ms
double register_loop_flops(at::ScalarType dtype, int threads);

/// The same one run at a time, by LibTorch's threads: for a limit that is measured beside what it limits, in turn with
/// it.
class RegisterPasses {
 public:
  RegisterPasses(at::ScalarType dtype, int threads);
  double flops() const;  ///< of one run of about 1 ms

 private:
  at::ScalarType dtype_;
  int threads_;
  int64_t rounds_;
};

/// What they work on, for the words beside the figure: "registers" or "AMX tiles".
const char* register_loop_place(at::ScalarType dtype);

/// Bytes read plus bytes written a second by a copy: 64 MiB copied are 128 MiB moved. The line that a plain store
/// fetches before it overwrites it (write-allocate) is not counted: it is the copy's own loss. So three copies are
/// timed, and the best of them is what an element-wise kernel could reach.
struct CopyBandwidth {
  double library = 0;  ///< memcpy
  double plain = 0;  ///< loop of vector loads and stores
  double past_caches = 0;  ///< loop with non-temporal stores, which fetch nothing; 0 where the processor has none
  double best() const { return std::max({library, plain, past_caches}); }
};

/// `threads` threads at once, each with its own two buffers of `bytes`; 0: together four times their last-level
/// caches (at least 64 MiB, at most 4 GiB), so that memory is measured. Sizes are rounded up to 4 KiB. Sum over
/// threads.
///
/// Cost      the best of 5 copies of at least 1 ms, three times; buffers are touched before
/// Errors    Error when there is no memory for the buffers
CopyBandwidth measure_copy(int threads, int64_t bytes = 0);

/// The best way to copy, beyond the caches.
double copy_bandwidth(int threads);

/// Bytes read plus bytes written a second by a pass that changes memory in place, which fetches no line in vain: the
/// limit of updates. One buffer a thread; otherwise as measure_copy.
double update_bandwidth(int threads, int64_t bytes = 0);

/// Bytes a second when nothing is written: the limit of sums. As measure_copy. One core waits for so many lines at
/// once, and reads about 30 GB/s (Zen 4), three quarters of what a copy reads and writes together. Nothing tried was
/// faster: 2 to 8 places at once, a page or a share of the buffer apart (14 to 29 GB/s); prefetches 0.5 to 16 KiB ahead
/// into any cache (26 to 32, within its noise); bursts of 1 or 4 lines. Small pages cost a third. Writing alone is no
/// faster (26).
double read_bandwidth(int threads, int64_t bytes = 0);

/// The passes above one at a time, over buffers that stay, by LibTorch's threads: for a limit that is measured beside
/// what it limits, in turn with it. Each call is one pass of all threads and gives bytes moved a second.
///
/// Cost      the constructor touches 2 buffers of `bytes` (as measure_copy) a thread and tries every way to copy twice
class MemoryPasses {
 public:
  explicit MemoryPasses(int threads, int64_t bytes = 0);
  ~MemoryPasses();
  MemoryPasses(const MemoryPasses&) = delete;

  double copy();  ///< in the way that was fastest at first
  double update();
  double read();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Bytes of the last-level caches that `threads` threads can have together: of one, or where cores share several (an
/// EPYC has one for every eight) of as many as there are threads. 32 MiB where the system does not say.
int64_t last_level_cache_bytes(int threads = 1);
/// Bytes of a core's own cache; 1 MiB where the system does not say.
int64_t core_cache_bytes();

}  // namespace trireme::ops
