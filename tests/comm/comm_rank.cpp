// One rank of the process ring, started by exec: joins the group that the environment names and plays its part.
//   TRIREME_COMM_RANK, _SIZE, _PORT, _BACKEND   who and where (the test serves the store)
//   TRIREME_COMM_PART   "checks [names]": the suite; "killed": the last rank kills itself in mid-collective and
//                       the others report; "silent": the last rank never calls; "time": print measurements
// Exits with 0 when all went as the part says, else prints why.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <signal.h>

#include <cstdlib>
#include <sstream>
#include <thread>

#include "comm_checks.h"
#include "trireme/base/error.h"
#include "trireme/comm/factory.h"

namespace trireme::comm::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSilence{1500};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (!value) throw std::runtime_error(std::string("the environment lacks ") + name);
  return value;
}

void run_checks(Communicator& c, std::istringstream names) {
  std::string name;
  if (names >> name) {
    do run_check(name, c);
    while (names >> name);
    return;
  }
  for (const Check& check : all_checks())
    if (std::string(check.name) != "Large") run_check(check.name, c);
}

// Prints the CommError that a survivor gets; anything else is a failure.
void report(const std::function<void()>& body) {
  const auto start = Clock::now();
  try {
    body();
  } catch (const CommError& error) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
    fmt::print("operation={} group={} global_rank={} ms={} text={}\n", error.details.operation, error.details.group,
               error.details.global_rank, ms, error.what());
    return;
  }
  throw std::runtime_error("the loss of a rank went unnoticed");
}

// The victim has begun the collective when it dies.
void lose_a_rank(Communicator& c, bool silent) {
  const bool victim = c.rank() == c.size() - 1;
  const int64_t n = 4 << 20;
  at::Tensor t = at::ones({n}, at::kFloat);
  c.all_reduce(t, t, {})->wait();
  report([&] {
    if (victim && silent) std::this_thread::sleep_for(3 * kSilence);  // then it finds the group given up
    for (int i = 0;; ++i) {
      const auto work = c.all_reduce(t, t, {});
      if (victim && !silent && i == 3) {
        for (int polls = 0; polls < 3; ++polls) work->poll();
        raise(SIGKILL);
      }
      work->wait();
    }
  });
}

template <typename F>
double best_ms(Communicator& c, int repeats, F&& f) {
  double best = 1e9;
  for (int i = 0; i < repeats; ++i) {
    c.barrier()->wait();
    const auto start = Clock::now();
    f();
    best = std::min(best, std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  return best;
}

void time_operations(Communicator& c) {
  at::set_num_threads(1);
  const int64_t n = int64_t{16} << 20;  // 64 MiB of float32
  const std::vector<int64_t> counts(c.size(), n / c.size()), twice(c.size(), 2 * n / c.size());
  const SharedBuffer symmetric = c.allocate_shared(n * 4, false), host = c.allocate_shared(n * 4, true);
  const auto options = at::dtype(at::kFloat);
  at::Tensor slot = at::from_blob(symmetric.mine, {n}, options).fill_(1);
  at::Tensor slot_bf16 = at::from_blob(symmetric.mine, {2 * n}, at::dtype(at::kBFloat16));
  at::Tensor copy = at::from_blob(host.mine, {n}, options).fill_(1), mine = at::ones({n}, options);
  at::Tensor shard = at::ones({n / c.size()}, options), shard_bf16 = at::ones({2 * n / c.size()}, options);
  const auto print = [&](const char* what, double ms) {
    if (c.rank() == 0) fmt::print("{:<52} {:9.4f} ms\n", what, ms);
  };
  print("reduce_scatter 64 MiB fp32, symmetric",
        best_ms(c, 10, [&] { c.reduce_scatter(shard, slot, counts, {})->wait(); }));
  print("reduce_scatter 64 MiB fp32, private",
        best_ms(c, 10, [&] { c.reduce_scatter(shard, mine, counts, {})->wait(); }));
  print("reduce_scatter 64 MiB bf16 += fp32, symmetric",
        best_ms(c, 10, [&] { c.reduce_scatter(shard_bf16, slot_bf16, twice, {.accumulate = true})->wait(); }));
  print("all_gather 64 MiB, host_shared", best_ms(c, 10, [&] { c.all_gather(copy, shard, counts)->wait(); }));
  print("all_gather 64 MiB, private", best_ms(c, 10, [&] { c.all_gather(mine, shard, counts)->wait(); }));
  print("all_reduce 64 MiB in place, symmetric", best_ms(c, 10, [&] { c.all_reduce(slot, slot, {})->wait(); }));
  print("all_reduce 64 MiB in place, private", best_ms(c, 10, [&] { c.all_reduce(mine, mine, {})->wait(); }));
  print("barrier", best_ms(c, 10, [&] {
                     for (int i = 0; i < 1000; ++i) c.barrier()->wait();
                   }) / 1000);
}

void play() {
  const int rank = std::stoi(variable("TRIREME_COMM_RANK")), size = std::stoi(variable("TRIREME_COMM_SIZE"));
  std::istringstream part(variable("TRIREME_COMM_PART"));
  std::string what;
  part >> what;
  const auto store = open_store({.port = static_cast<uint16_t>(std::stoi(variable("TRIREME_COMM_PORT"))),
                                 .token = variable("TRIREME_COMM_TOKEN")});
  const std::string backend = variable("TRIREME_COMM_BACKEND");
  const auto meet = [&](const std::string& name, std::chrono::milliseconds timeout) {
    return make_communicator(
        {.name = name, .backend = backend, .rank = rank, .size = size, .store = store.store, .timeout = timeout});
  };
  constexpr std::chrono::milliseconds kPatient{60'000};
  const bool is_silent = what == "silent";
  // On a busy machine ranks start seconds apart: they meet with patience before they wait with little.
  if (is_silent) meet("start", kPatient)->barrier()->wait();
  const auto c = meet("shard", is_silent ? kSilence : kPatient);
  if (what == "checks") return run_checks(*c, std::move(part));
  if (what == "backend") return fmt::print("backend={}\n", c->backend());
  if (what == "time") return time_operations(*c);
  lose_a_rank(*c, is_silent);
}

}  // namespace
}  // namespace trireme::comm::testing

int main() {
  try {
    trireme::comm::testing::play();
    return 0;
  } catch (const std::exception& error) {
    fmt::print("{}\n", error.what());
    return 1;
  }
}
