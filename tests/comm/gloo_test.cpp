// What is the gloo backend's own: sums whose terms travel as bf16, and what becomes of data that are on their way
// while the calls turn out to differ.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <csignal>
#include <filesystem>

#include "thread_ranks.h"
#include "trireme/base/error.h"
#include "trireme/comm/collective.h"
#include "trireme/comm/gloo/gloo.h"

namespace trireme::comm::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// In the header of the call; one chunk; several chunks, the last one short.
constexpr int64_t kSizes[] = {5, 300'000, 2'500'001};

at::Tensor values(int64_t n, int rank) { return at::arange(n, at::kFloat).add_(rank * 1000).sin_(); }
at::Tensor rounded(int64_t n, int rank) { return values(n, rank).to(at::kBFloat16).to(at::kFloat); }

at::Tensor sum_of_rounded(int64_t n, int ranks, at::Tensor sum) {
  for (int k = 0; k < ranks; ++k) sum = sum + rounded(n, k);
  return sum;
}

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

void expect_no_errors(const ThreadRanks& options, const RankBody& body) {
  for (const std::string& error : run_thread_ranks(options, body)) EXPECT_EQ(error, "");
}

std::vector<int64_t> uneven(int64_t n, int size) {
  std::vector<int64_t> counts(size, n / (2 * size));
  counts[0] = n - (size - 1) * counts[0];
  return counts;
}

TEST(Gloo, Bf16SumsAreFp32SumsOfRoundedTerms) {
  expect_no_errors({.backend = "gloo", .size = 3, .bf16_sums = true}, [](Communicator& c) {
    for (const int64_t n : kSizes) {
      const at::Tensor mine = values(n, c.rank()), before = at::ones({n}, at::kFloat);
      const auto counts = uneven(n, c.size());
      int64_t begin = 0;
      for (int k = 0; k < c.rank(); ++k) begin += counts[k];
      at::Tensor shard = before.narrow(0, begin, counts[c.rank()]).clone();
      c.reduce_scatter(shard, mine, counts, {.accumulate = true})->wait();
      const at::Tensor expected = sum_of_rounded(n, c.size(), before);
      require(at::equal(shard, expected.narrow(0, begin, counts[c.rank()])), "reduce_scatter");

      at::Tensor all = before.clone();
      c.all_reduce(all, mine, {.accumulate = true})->wait();
      require(at::equal(all, expected), "all_reduce, accumulating");
      at::Tensor root = before.clone();
      c.reduce(root, mine, 1, {.accumulate = true})->wait();
      require(at::equal(root, c.rank() == 1 ? expected : before), "reduce");
    }
  });
}

// Each rank rounds its own terms too: whichever rank folds, the bits are the same.
TEST(Gloo, Bf16SumsInPlaceAreTheSameOnAllRanks) {
  expect_no_errors({.backend = "gloo", .size = 3, .bf16_sums = true}, [](Communicator& c) {
    for (const int64_t n : kSizes) {
      at::Tensor t = values(n, c.rank());
      c.all_reduce(t, t, {})->wait();
      at::Tensor expected = rounded(n, 0) + rounded(n, 1) + rounded(n, 2);
      require(at::equal(t, expected), "all_reduce in place");
    }
  });
}

// A write to a peer that has died is an error, and not the end of this process.
TEST(Gloo, BrokenPipesDoNotEndTheProcess) {
  const auto before = std::signal(SIGPIPE, SIG_DFL);
  expect_no_errors({.backend = "gloo", .size = 2}, [](Communicator& c) { c.barrier()->wait(); });
  EXPECT_EQ(raise(SIGPIPE), 0);
  std::signal(SIGPIPE, before);
}

TEST(Gloo, OnlyFp32SumsAreRounded) {
  expect_no_errors({.backend = "gloo", .size = 2, .bf16_sums = true}, [](Communicator& c) {
    const int64_t n = 100'000;
    at::Tensor doubles = values(n, c.rank()).to(at::kDouble), largest = values(n, c.rank());
    c.all_reduce(doubles, doubles, {})->wait();
    require(at::equal(doubles, values(n, 0).to(at::kDouble) + values(n, 1).to(at::kDouble)), "float64");
    c.all_reduce(largest, largest, {.op = ReduceOp::max})->wait();
    require(at::equal(largest, at::maximum(values(n, 0), values(n, 1))), "max");
    at::Tensor whole = at::empty({2 * n}, at::kFloat);
    c.all_gather(whole, values(n, c.rank()), std::vector<int64_t>{n, n})->wait();
    require(at::equal(whole, at::cat({values(n, 0), values(n, 1)})), "all_gather");
  });
}

TEST(Gloo, TrafficCountsTheBytesOfBf16Terms) {
  for (const bool bf16 : {false, true}) {
    expect_no_errors({.backend = "gloo", .size = 2, .bf16_sums = bf16}, [bf16](Communicator& c) {
      const int64_t n = 100'000, term = bf16 ? 2 : 4;
      at::Tensor t = values(n, c.rank()), half = at::empty({n / 2}, at::kFloat);
      const std::vector<int64_t> counts(2, n / 2);
      c.reduce_scatter(half, t, counts, {})->wait();
      require(c.traffic(Operation::reduce_scatter).bytes == n / 2 * term, "reduce_scatter");
      c.all_reduce(t, t, {})->wait();  // the sums are gathered as fp32
      require(c.traffic(Operation::all_reduce).bytes == n / 2 * (term + 4), "all_reduce");
      c.all_gather(t, half, counts)->wait();
      require(c.traffic(Operation::all_gather).bytes == n / 2 * 4, "all_gather");
      at::Tensor doubles = t.to(at::kDouble);
      c.all_reduce(doubles, doubles, {})->wait();
      require(c.traffic(Operation::all_reduce).bytes == n / 2 * (term + 4) + n * 8, "all_reduce of float64");
    });
  }
}

// The data of a large call follow its header without waiting; a short or long one at the other end must not use them.
TEST(Gloo, DifferentCallsWithLargeDataLeaveTheSumAlone) {
  for (const auto& [first, second] :
       {std::pair<int64_t, int64_t>{10, 4'000'000}, {3'000'000, 4'000'000}, {40'000, 10}}) {
    for (int attempt = 0; attempt < 6; ++attempt) {
      const auto errors =
          run_thread_ranks({.backend = attempt % 2 == 0 ? "gloo" : kSealedGloo, .size = 2}, [&](Communicator& c) {
            const int64_t n = c.rank() == 0 ? first : second;
            at::Tensor sum = at::zeros({n}, at::kFloat);
            const at::Tensor mine = at::ones({n}, at::kFloat);
            try {
              c.all_reduce(sum, mine, {})->wait();
            } catch (const CommError&) {
              require(sum.count_nonzero().item<int64_t>() == 0, "something was added to the sum");
              throw;
            }
          });
      // The rank that sees it first leaves, and its end of the connection may be closed before the other has read what
      // was sent on it: that one names the rank it lost.
      const auto names_sizes =
          AllOf(HasSubstr("different sizes"), HasSubstr(std::to_string(first)), HasSubstr(std::to_string(second)));
      EXPECT_THAT(errors, Contains(names_sizes));
      for (const std::string& e : errors)
        EXPECT_THAT(e, AnyOf(names_sizes, ContainsRegex("failed after .*: rank [01] ")));
    }
  }
}

// Ranks that are bound to a core share it with the transport's thread: see PatientThreads in gloo.cpp.
TEST(Gloo, OnlyTheTransportsThreadIsOneThatWaitsForItsTurn) {
  expect_no_errors({.backend = "gloo", .size = 2}, [](Communicator& c) {
    require(sched_getscheduler(0) == SCHED_OTHER, "the rank's own thread was changed");
    c.barrier()->wait();
    int batch = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
      batch += sched_getscheduler(std::stoi(task.path().filename())) == SCHED_BATCH;
    require(batch == 2, "not one thread of each of the two ranks: " + std::to_string(batch));
    c.barrier()->wait();
  });
}

TEST(Gloo, AFailureToConnectNamesTheTimeoutOnlyWhenItHasPassed) {
  const Group group{.size = 2, .timeout = std::chrono::seconds(30)};
  const std::string early =
      why_not_connected("lo", group, std::chrono::milliseconds(50), "socket: Too many open files");
  EXPECT_THAT(early, AllOf(HasSubstr("ulimit -n"), ::testing::Not(HasSubstr("timeout"))));
  EXPECT_THAT(
      why_not_connected("lo", group, std::chrono::seconds(30), "nobody came"),
      AllOf(HasSubstr("within the timeout of 30000 ms; see whether one has failed"), HasSubstr("(nobody came)")));
}

TEST(Gloo, LargeMessageOfAnotherSizeIsRefused) {
  for (const auto& [sent, expected] :
       {std::pair<int64_t, int64_t>{4'000'000, 10}, {10, 4'000'000}, {4'000'000, 5'000}}) {
    const auto errors = run_thread_ranks({.backend = "gloo", .size = 2}, [&](Communicator& c) {
      at::Tensor t = at::ones({c.rank() == 0 ? sent : expected}, at::kFloat);
      (c.rank() == 0 ? c.send(t, 1) : c.receive(t, 0))->wait();
    });
    EXPECT_THAT(errors[1], AllOf(HasSubstr(std::to_string(sent)), HasSubstr(std::to_string(expected))));
  }
}

}  // namespace
}  // namespace trireme::comm::testing
