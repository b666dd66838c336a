#include "trireme/machine/limits.h"

#include <sys/mman.h>

#include <barrier>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/processor.h"
#include "trireme/base/stopwatch.h"
#include "trireme/machine/kernels.h"
#include "trireme/ops/parallel.h"

namespace trireme::machine {
namespace {

// Shorter than a time slice, so that some runs are not interrupted on a machine with other work.
constexpr double kRunSeconds = 1e-3;
constexpr int kLoopRepeats = 40, kCopyRepeats = 5;
constexpr int kLoopEnough = 20;  // runs in a row that are not faster by kFaster
constexpr double kFaster = 0.998;

const LimitsKernel& kernel() {
#if defined(__x86_64__)
  static const LimitsKernel chosen = [] {
    const base::Processor& has = base::processor();
    LimitsKernel widest = has.avx512 ? kLimitsAvx512 : has.avx2 ? kLimitsAvx2 : kLimitsPortable;
    RegisterLoop& bfloat16 = widest.multiply_add[static_cast<int>(LimitsDtype::bfloat16)];
    // On Intel's processors the dot products take longer than the multiply-adds that they replace.
    if (!has.avx512_bf16 || !has.is_amd) bfloat16 = {};
    if (has.amx_bf16) bfloat16 = kTileLoop;
    return widest;
  }();
  return chosen;
#else
  return kLimitsPortable;
#endif
}

const RegisterLoop& loop_of(at::ScalarType dtype) {
  const auto* loops = kernel().multiply_add;
  if (dtype == at::kDouble) return loops[static_cast<int>(LimitsDtype::float64)];
  const RegisterLoop& pairs = loops[static_cast<int>(LimitsDtype::bfloat16)];
  if (dtype == at::kBFloat16 && pairs.run != nullptr) return pairs;
  return loops[static_cast<int>(LimitsDtype::float32)];
}

// Runs `body` on all threads at once, `repeats` times, or until `enough` runs in a row were not faster by kFaster; the
// caller is one of the threads. Returns the seconds of the slowest thread in the fastest run.
template <class Body>
double fastest(int threads, int repeats, const Body& body, int enough = std::numeric_limits<int>::max()) {
  std::vector<double> seconds(static_cast<size_t>(threads));
  std::barrier together(threads);
  double best = std::numeric_limits<double>::max();
  int slower = 0;  // runs since the last that was faster; the caller sets it before the others go on
  const auto work = [&](int thread) {
    for (int i = 0; i < repeats; ++i) {
      together.arrive_and_wait();
      if (slower >= enough) break;
      const base::Stopwatch watch;
      body(thread);
      seconds[static_cast<size_t>(thread)] = watch.seconds();
      together.arrive_and_wait();
      if (thread != 0) continue;
      const double now = *std::max_element(seconds.begin(), seconds.end());
      slower = now < kFaster * best ? 0 : slower + 1;
      best = std::min(best, now);
    }
  };
  std::vector<std::jthread> others;
  try {
    for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
  } catch (const std::system_error&) {  // the threads that have started must not wait for the others
    for (auto missing = static_cast<size_t>(threads) - others.size(); missing > 0; --missing)
      together.arrive_and_drop();
    throw;
  }
  work(0);
  return best;
}

void keep(double value) { asm volatile("" : : "m"(value)); }

// Rounds of a loop on registers that take about kRunSeconds.
int64_t rounds_worth_timing(const RegisterLoop& loop) {
  constexpr int64_t kFew = 1000;
  const double few = fastest(1, 3, [&](int) { keep(loop.run(kFew)); });
  return std::max(kFew, static_cast<int64_t>(kFew * kRunSeconds / few));
}

struct Unmap {
  size_t bytes;
  void operator()(void* data) const { munmap(data, bytes); }
};
using Buffer = std::unique_ptr<void, Unmap>;

// Touched memory, on huge pages if the system gives them.
Buffer touched_buffer(size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    throw Error("limits: no memory for a buffer of " + std::to_string(bytes) + " bytes: " + std::strerror(errno));
  madvise(data, bytes, MADV_HUGEPAGE);
  std::memset(data, 1, bytes);
  return {data, Unmap{bytes}};
}

std::vector<Buffer> buffers(int count, int64_t bytes) {
  std::vector<Buffer> all;
  for (int i = 0; i < count; ++i) all.push_back(touched_buffer(static_cast<size_t>(bytes)));
  return all;
}

int64_t bytes_per_thread(int threads, int64_t bytes) {
  constexpr int64_t kPage = 4096;
  if (bytes == 0)
    bytes =
        std::clamp<int64_t>(4 * base::last_level_cache_bytes(threads), int64_t{64} << 20, int64_t{4} << 30) / threads;
  return (bytes + kPage - 1) / kPage * kPage;
}

void library_copy(void* to, const void* from, int64_t bytes) { std::memcpy(to, from, static_cast<size_t>(bytes)); }

// Calls of `call` a second by each thread; a run repeats the call until it is long enough to time.
template <class Call>
double calls_per_second(int threads, const Call& call) {
  const double once = fastest(threads, 2, call);
  const auto inner = std::max<int64_t>(1, static_cast<int64_t>(kRunSeconds / once));
  return static_cast<double>(inner) / fastest(threads, kCopyRepeats, [&](int thread) {
           for (int64_t i = 0; i < inner; ++i) call(thread);
         });
}

}  // namespace

const char* register_loop_place(at::ScalarType dtype) {
  return dtype == at::kBFloat16 && base::processor().amx_bf16 ? "AMX tiles" : "registers";
}

double register_loop_flops(at::ScalarType dtype, int threads) {
  const RegisterLoop& loop = loop_of(dtype);
  const int64_t rounds = rounds_worth_timing(loop);
  const double seconds = fastest(threads, kLoopRepeats, [&](int) { keep(loop.run(rounds)); }, kLoopEnough);
  return static_cast<double>(threads * rounds * loop.flops_per_round) / seconds;
}

RegisterPasses::RegisterPasses(at::ScalarType dtype, int threads)
    : dtype_(dtype), threads_(threads), rounds_(rounds_worth_timing(loop_of(dtype))) {}

double RegisterPasses::flops() const {
  const RegisterLoop& loop = loop_of(dtype_);
  const base::Stopwatch watch;
  ops::parallel_rows(threads_, 1, [&](int64_t first, int64_t last) {
    for (int64_t thread = first; thread < last; ++thread) keep(loop.run(rounds_));
  });
  return static_cast<double>(threads_ * rounds_ * loop.flops_per_round) / watch.seconds();
}

CopyBandwidth measure_copy(int threads, int64_t bytes) {
  bytes = bytes_per_thread(threads, bytes);
  const std::vector<Buffer> from = buffers(threads, bytes), to = buffers(threads, bytes);
  const auto moved_per_second = [&](auto copy) {
    const auto call = [&](int thread) {
      copy(to[static_cast<size_t>(thread)].get(), from[static_cast<size_t>(thread)].get(), bytes);
      asm volatile("" ::: "memory");
    };
    return 2.0 * static_cast<double>(threads * bytes) * calls_per_second(threads, call);
  };
  CopyBandwidth result;
  result.library = moved_per_second(library_copy);
  result.plain = moved_per_second(kernel().copy);
  if (kernel().copy_past_caches != nullptr) result.past_caches = moved_per_second(kernel().copy_past_caches);
  return result;
}

double update_bandwidth(int threads, int64_t bytes) {
  bytes = bytes_per_thread(threads, bytes);
  const std::vector<Buffer> all = buffers(threads, bytes);
  return 2.0 * static_cast<double>(threads * bytes) * calls_per_second(threads, [&](int thread) {
           kernel().update(all[static_cast<size_t>(thread)].get(), bytes);
           asm volatile("" ::: "memory");
         });
}

double read_bandwidth(int threads, int64_t bytes) {
  bytes = bytes_per_thread(threads, bytes);
  const std::vector<Buffer> from = buffers(threads, bytes);
  return static_cast<double>(threads * bytes) * calls_per_second(threads, [&](int thread) {
           keep(kernel().read(from[static_cast<size_t>(thread)].get(), bytes));
         });
}

struct MemoryPasses::State {
  int threads;
  int64_t bytes;
  std::vector<Buffer> from, to;
  void (*copy)(void* to, const void* from, int64_t bytes) = nullptr;

  /// Seconds of body(thread) on all threads.
  template <class Body>
  double seconds(const Body& body) const {
    const base::Stopwatch watch;
    ops::parallel_rows(threads, 1, [&](int64_t first, int64_t last) {
      for (int64_t thread = first; thread < last; ++thread) body(static_cast<size_t>(thread));
    });
    return watch.seconds();
  }
  double moved(int64_t times) const { return static_cast<double>(times * threads * bytes); }
  double copy_seconds(decltype(copy) way) const {
    return seconds([&](size_t thread) { way(to[thread].get(), from[thread].get(), bytes); });
  }
};

MemoryPasses::MemoryPasses(int threads, int64_t bytes)
    : state_(new State{.threads = threads, .bytes = bytes_per_thread(threads, bytes), .from = {}, .to = {}}) {
  state_->from = buffers(threads, state_->bytes);
  state_->to = buffers(threads, state_->bytes);
  double least = std::numeric_limits<double>::max();
  for (int round = 0; round < 2; ++round)
    for (auto* way : {library_copy, kernel().copy, kernel().copy_past_caches})
      if (const double seconds = way == nullptr ? least : state_->copy_seconds(way); seconds < least)
        least = seconds, state_->copy = way;
}

MemoryPasses::~MemoryPasses() = default;

double MemoryPasses::copy() { return state_->moved(2) / state_->copy_seconds(state_->copy); }

double MemoryPasses::update() {
  return state_->moved(2) /
         state_->seconds([&](size_t thread) { kernel().update(state_->to[thread].get(), state_->bytes); });
}

double MemoryPasses::read() {
  return state_->moved(1) /
         state_->seconds([&](size_t thread) { keep(kernel().read(state_->from[thread].get(), state_->bytes)); });
}

}  // namespace trireme::machine
