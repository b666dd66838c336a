// Collectives of the gloo backend beside c10d's own ProcessGroupGloo, in the same processes, sizes in turn.
//   ninja gloo_bench && ./gloo_bench [ranks] [pin]
// Bytes are those of the whole vector in fp32: the input of a reduction, the output of a gather. Times are the
// median of rank 0 over private memory, each call started after a barrier; with `pin` a rank has one core, as in
// training. The last column is how much faster ours is.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "trireme/comm/factory.h"

extern char** environ;

namespace {

namespace comm = trireme::comm;
using Clock = std::chrono::steady_clock;

struct Rank {
  int rank, size;
  comm::CommunicatorPtr ours, ours_bf16, ours_sealed;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> raw;
};

double median_us(const Rank& r, int repeats, const std::function<void()>& call) {
  std::vector<double> times;
  for (int i = 0; i < repeats + 2; ++i) {
    r.ours->barrier()->wait();
    const auto start = Clock::now();
    call();
    if (i >= 2) times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::ranges::nth_element(times, times.begin() + repeats / 2);
  return times[repeats / 2];
}

void expect(const at::Tensor& t, float value, const char* what) {
  if (!t.eq(value).all().item<bool>()) throw std::runtime_error(fmt::format("{}: wrong result", what));
}

void measure(const Rank& r, int64_t bytes) {
  const int64_t n = bytes / 4 / r.size * r.size;
  const int repeats = bytes >= (4 << 20) ? 9 : 101;
  const std::vector<int64_t> counts(r.size, n / r.size);
  at::Tensor whole = at::ones({n}, at::kFloat), out = at::ones({n}, at::kFloat);
  at::Tensor part = at::ones({n / r.size}, at::kFloat);
  const float sum = static_cast<float>(r.size);
  const auto print = [&](const char* what, double ours, double raw) {
    if (r.rank == 0)
      fmt::print("{:<16} {:>9} B  ours {:>10.0f} us  raw {:>10.0f} us  {:>6.2f}x\n", what, bytes, ours, raw,
                 raw / ours);
  };
  const auto ours_reduce = [&](const comm::CommunicatorPtr& c) {
    const double t = median_us(r, repeats, [&] { c->reduce_scatter(part, whole, counts, {})->wait(); });
    expect(part, sum, "reduce_scatter");
    return t;
  };
  const auto raw_reduce = median_us(r, repeats, [&] { r.raw->_reduce_scatter_base(part, whole)->wait(); });
  expect(part, sum, "raw reduce_scatter");
  print("reduce_scatter", ours_reduce(r.ours), raw_reduce);
  print("  terms as bf16", ours_reduce(r.ours_bf16), raw_reduce);
  print("  sealed", ours_reduce(r.ours_sealed), raw_reduce);
  const double ours_gather = median_us(r, repeats, [&] { r.ours->all_gather(out, part, counts)->wait(); });
  expect(out, sum, "all_gather");
  print("all_gather", ours_gather, median_us(r, repeats, [&] { r.raw->_allgather_base(out, part)->wait(); }));
  const double ours_all = median_us(r, repeats, [&] { r.ours->all_reduce(out, whole, {})->wait(); });
  expect(out, sum, "all_reduce");
  std::vector<at::Tensor> tensors{out.zero_()};
  print("all_reduce", ours_all, median_us(r, repeats, [&] { r.raw->allreduce(tensors)->wait(); }));
}

constexpr const char* kTokenVariable = "TRIREME_BENCH_TOKEN";  // of a store that lives for seconds, on this host

void play(int rank, int size, uint16_t port, bool pin) {
  if (pin) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(rank % sysconf(_SC_NPROCESSORS_ONLN), &cores);
    sched_setaffinity(0, sizeof cores, &cores);
  }
  at::set_num_threads(1);
  const auto store = comm::open_store({.port = port, .token = std::getenv(kTokenVariable)}).store;
  Rank r{.rank = rank, .size = size};
  r.ours = comm::make_communicator({.name = "ours", .backend = "gloo", .rank = rank, .size = size, .store = store});
  r.ours_bf16 = comm::make_communicator(
      {.name = "bf16", .backend = "gloo", .rank = rank, .size = size, .store = store, .bf16_sums = true});
  r.ours_sealed = comm::make_communicator(
      {.name = "sealed", .backend = "gloo", .rank = rank, .size = size, .store = store, .sealed = true});
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface("lo"));
  r.raw = c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>("raw", store), rank, size,
                                                      options);
  for (const int64_t bytes : {4 << 10, 256 << 10, 4 << 20, 64 << 20}) measure(r, bytes);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string pin = argc > 2 ? argv[2] : "-";
  if (argc == 5) {
    play(std::atoi(argv[3]), std::atoi(argv[1]), static_cast<uint16_t>(std::atoi(argv[4])), pin == "pin");
    return 0;
  }
  const std::string size = argc > 1 ? argv[1] : "2";
  const auto server = comm::open_store({.is_server = true});
  setenv(kTokenVariable, server.token.c_str(), 1);
  std::vector<pid_t> children(std::stoul(size));
  for (size_t k = 0; k < children.size(); ++k) {
    std::string words[] = {argv[0], size, pin, std::to_string(k), std::to_string(server.port)};
    char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), words[4].data(), nullptr};
    if (posix_spawn(&children[k], "/proc/self/exe", nullptr, nullptr, arguments, environ) != 0) return 1;
  }
  int failures = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failures += status != 0;
  }
  return failures;
}
