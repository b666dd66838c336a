#include "trireme/ops/limits.h"

#include <sys/mman.h>

#include <barrier>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/processor.h"
#include "trireme/base/stopwatch.h"
#include "trireme/ops/limits_kernel.h"
#include "trireme/ops/parallel.h"

namespace trireme::ops {
namespace {

// Shorter than the time slices of a machine that others use too: some runs are then not interrupted.
constexpr double kRunSeconds = 1e-3;
constexpr int kLoopRepeats = 40, kCopyRepeats = 5;

const LimitsKernel& kernel() {
#if defined(__x86_64__)
  static const LimitsKernel chosen = [] {
    const base::Processor& has = base::processor();
    LimitsKernel widest = has.avx512 ? kLimitsAvx512 : has.avx2 ? kLimitsAvx2 : kLimitsPortable;
    RegisterLoop& bfloat16 = widest.multiply_add[static_cast<int>(LimitsDtype::bfloat16)];
    if (!has.avx512_bf16) bfloat16 = {};
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

// Seconds of the slowest thread in the fastest of `repeats` runs that all threads make at once; the caller is one.
template <class Body>
double fastest(int threads, int repeats, const Body& body) {
  std::vector<double> seconds(static_cast<size_t>(threads));
  std::barrier together(threads);
  double best = std::numeric_limits<double>::max();
  const auto work = [&](int thread) {
    for (int i = 0; i < repeats; ++i) {
      together.arrive_and_wait();
      const base::Stopwatch watch;
      body(thread);
      seconds[static_cast<size_t>(thread)] = watch.seconds();
      together.arrive_and_wait();
      if (thread == 0) best = std::min(best, *std::max_element(seconds.begin(), seconds.end()));
    }
  };
  std::vector<std::jthread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
  work(0);
  return best;
}

void keep(double value) { asm volatile("" : : "m"(value)); }

// Of a loop on registers, for one run.
int64_t rounds_worth_timing(const RegisterLoop& loop) {
  constexpr int64_t kFew = 1000;
  const double few = fastest(1, 3, [&](int) { keep(loop.run(kFew)); });
  return std::max(kFew, static_cast<int64_t>(kFew * kRunSeconds / few));
}

// Touched memory on huge pages where the system gives them.
class Buffer {
 public:
  explicit Buffer(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED)
      throw Error("limits: no memory for a buffer of " + std::to_string(bytes) + " bytes: " + std::strerror(errno));
    madvise(data_, bytes_, MADV_HUGEPAGE);
    std::memset(data_, 1, bytes_);
  }
  Buffer(Buffer&& other) noexcept : data_(other.data_), bytes_(std::exchange(other.bytes_, 0)) {}
  ~Buffer() {
    if (bytes_ > 0) munmap(data_, bytes_);
  }
  void* data() const { return data_; }

 private:
  void* data_;
  size_t bytes_;
};

std::vector<Buffer> buffers(int count, int64_t bytes) {
  std::vector<Buffer> all;
  for (int i = 0; i < count; ++i) all.emplace_back(bytes);
  return all;
}

int64_t bytes_per_thread(int threads, int64_t bytes) {
  constexpr int64_t kPage = 4096;
  if (bytes == 0)
    bytes = std::clamp<int64_t>(4 * last_level_cache_bytes(threads), int64_t{64} << 20, int64_t{4} << 30) / threads;
  return (bytes + kPage - 1) / kPage * kPage;
}

// Calls a second of `call` by each of the threads, repeated so often that a run is worth timing.
template <class Call>
double calls_per_second(int threads, const Call& call) {
  const double once = fastest(threads, 2, call);
  const auto inner = std::max<int64_t>(1, static_cast<int64_t>(kRunSeconds / once));
  return static_cast<double>(inner) / fastest(threads, kCopyRepeats, [&](int thread) {
           for (int64_t i = 0; i < inner; ++i) call(thread);
         });
}

// Largest cache of a level at least `from` and at most `to`, as the kernel sees it: the C library's answer counts the
// caches of all of a socket's core complexes as one.
int64_t cache_bytes(int from, int to, int64_t unknown) {
  int64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    std::ifstream level_file(folder + "level"), size_file(folder + "size"), type_file(folder + "type");
    int level = 0;
    int64_t kib = 0;
    std::string type;
    if (level_file >> level && size_file >> kib && type_file >> type && type != "Instruction" && level >= from &&
        level <= to)
      largest = std::max(largest, kib << 10);
  }
  return largest > 0 ? largest : unknown;
}

// Last-level caches of the machine: sets of processors that share one, each counted once.
int num_last_level_caches() {
  std::set<std::string> shared;
  for (unsigned cpu = 0; cpu < std::thread::hardware_concurrency(); ++cpu) {
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index3/shared_cpu_list");
    if (std::string processors; std::getline(file, processors)) shared.insert(processors);
  }
  return std::max(1, static_cast<int>(shared.size()));
}

}  // namespace

const char* register_loop_place(at::ScalarType dtype) {
  return dtype == at::kBFloat16 && base::processor().amx_bf16 ? "AMX tiles" : "registers";
}

double register_loop_flops(at::ScalarType dtype, int threads) {
  const RegisterLoop& loop = loop_of(dtype);
  const int64_t rounds = rounds_worth_timing(loop);
  const double seconds = fastest(threads, kLoopRepeats, [&](int) { keep(loop.run(rounds)); });
  return static_cast<double>(threads * rounds * loop.flops_per_round) / seconds;
}

RegisterPasses::RegisterPasses(at::ScalarType dtype, int threads)
    : dtype_(dtype), threads_(threads), rounds_(rounds_worth_timing(loop_of(dtype))) {}

double RegisterPasses::flops() const {
  const RegisterLoop& loop = loop_of(dtype_);
  const base::Stopwatch watch;
  parallel_rows(threads_, 1, [&](int64_t first, int64_t last) {
    for (int64_t thread = first; thread < last; ++thread) keep(loop.run(rounds_));
  });
  return static_cast<double>(threads_ * rounds_ * loop.flops_per_round) / watch.seconds();
}

CopyBandwidth measure_copy(int threads, int64_t bytes) {
  bytes = bytes_per_thread(threads, bytes);
  const std::vector<Buffer> from = buffers(threads, bytes), to = buffers(threads, bytes);
  const auto moved_per_second = [&](auto copy) {
    const auto call = [&](int thread) {
      copy(to[static_cast<size_t>(thread)].data(), from[static_cast<size_t>(thread)].data(), bytes);
      asm volatile("" ::: "memory");
    };
    return 2.0 * static_cast<double>(threads * bytes) * calls_per_second(threads, call);
  };
  CopyBandwidth result;
  result.library =
      moved_per_second([](void* out, const void* in, int64_t n) { std::memcpy(out, in, static_cast<size_t>(n)); });
  result.plain = moved_per_second(kernel().copy);
  if (kernel().copy_past_caches != nullptr) result.past_caches = moved_per_second(kernel().copy_past_caches);
  return result;
}

double copy_bandwidth(int threads) { return measure_copy(threads).best(); }

double update_bandwidth(int threads, int64_t bytes) {
  bytes = bytes_per_thread(threads, bytes);
  const std::vector<Buffer> all = buffers(threads, bytes);
  const auto call = [&](int thread) {
    kernel().update(all[static_cast<size_t>(thread)].data(), bytes);
    asm volatile("" ::: "memory");
  };
  return 2.0 * static_cast<double>(threads * bytes) * calls_per_second(threads, call);
}

double read_bandwidth(int threads, int64_t bytes) {
  bytes = bytes_per_thread(threads, bytes);
  const std::vector<Buffer> from = buffers(threads, bytes);
  const auto call = [&](int thread) { keep(kernel().read(from[static_cast<size_t>(thread)].data(), bytes)); };
  return static_cast<double>(threads * bytes) * calls_per_second(threads, call);
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
    parallel_rows(threads, 1, [&](int64_t first, int64_t last) {
      for (int64_t thread = first; thread < last; ++thread) body(static_cast<size_t>(thread));
    });
    return watch.seconds();
  }
  double moved(int64_t times) const { return static_cast<double>(times * threads * bytes); }
  double copy_seconds(decltype(copy) way) const {
    return seconds([&](size_t thread) { way(to[thread].data(), from[thread].data(), bytes); });
  }
};

MemoryPasses::MemoryPasses(int threads, int64_t bytes)
    : state_(new State{.threads = threads, .bytes = bytes_per_thread(threads, bytes), .from = {}, .to = {}}) {
  state_->from = buffers(threads, state_->bytes);
  state_->to = buffers(threads, state_->bytes);
  const auto library = [](void* out, const void* in, int64_t n) { std::memcpy(out, in, static_cast<size_t>(n)); };
  double least = std::numeric_limits<double>::max();
  for (int round = 0; round < 2; ++round)
    for (auto* way : {+library, kernel().copy, kernel().copy_past_caches})
      if (const double seconds = way == nullptr ? least : state_->copy_seconds(way); seconds < least)
        least = seconds, state_->copy = way;
}

MemoryPasses::~MemoryPasses() = default;

double MemoryPasses::copy() { return state_->moved(2) / state_->copy_seconds(state_->copy); }

double MemoryPasses::update() {
  return state_->moved(2) /
         state_->seconds([&](size_t thread) { kernel().update(state_->to[thread].data(), state_->bytes); });
}

double MemoryPasses::read() {
  return state_->moved(1) /
         state_->seconds([&](size_t thread) { keep(kernel().read(state_->from[thread].data(), state_->bytes)); });
}

int64_t last_level_cache_bytes(int threads) {
  return cache_bytes(2, 4, int64_t{32} << 20) * std::min(threads, num_last_level_caches());
}

int64_t core_cache_bytes() { return cache_bytes(2, 2, int64_t{1} << 20); }

}  // namespace trireme::ops
