// How collectives_bench and its Open MPI half measure, so that both do it alike: batches of calls between barriers,
// the slowest rank's time of each batch, then median and best over the batches.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace bench {

enum class Operation { all_reduce, reduce_scatter, all_gather, barrier };
constexpr const char* kOperationNames[] = {"all_reduce", "reduce_scatter", "all_gather", "barrier"};

/// Pins this process to the core whose turn it is: rank 0 to the first it may use, rank 1 to the next, and so on.
inline void pin(int rank) {
  cpu_set_t allowed, one;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  int turn = rank % CPU_COUNT(&allowed), cpu = 0;
  while (!CPU_ISSET(cpu, &allowed) || turn-- > 0) ++cpu;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  sched_setaffinity(0, sizeof one, &one);
}

inline std::vector<int64_t> parse_sizes(const std::string& text) {
  std::vector<int64_t> sizes;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) sizes.push_back(std::stoll(word));
  return sizes;
}

/// Small integers that differ by place and rank: their sums are exact.
inline float value(int64_t i, int rank) { return static_cast<float>(i % 7 + rank); }
inline float sum(int64_t i, int size) { return static_cast<float>(i % 7 * size + size * (size - 1) / 2); }

struct Measure {
  std::function<void()> synchronise;                      ///< barrier of the implementation at hand
  std::function<void(std::vector<double>&)> slowest;      ///< element-wise maximum over the ranks
  int calls_of_4_kib = 400;                               ///< calls per batch; larger sizes take fewer
  int batches = 11;
};

/// Prints "R <name> <operation> <bytes> <median us> <best us>" on rank 0.
inline void time_calls(const Measure& m, int rank, const std::string& name, Operation operation, int64_t bytes,
                       const std::function<void()>& call) {
  const auto calls = std::max<int64_t>(1, m.calls_of_4_kib / std::max<int64_t>(1, bytes / 16384));
  std::vector<double> us;
  for (int batch = -2; batch < m.batches; ++batch) {  // two to warm up
    m.synchronise();
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < calls; ++i) call();
    const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
    if (batch >= 0) us.push_back(elapsed.count() / static_cast<double>(calls));
  }
  m.slowest(us);
  std::ranges::sort(us);
  if (rank == 0)
    std::printf("R %s %s %lld %.4f %.4f\n", name.c_str(), kOperationNames[static_cast<int>(operation)],
                static_cast<long long>(bytes), us[us.size() / 2], us[0]);
  std::fflush(stdout);
}

}  // namespace bench
