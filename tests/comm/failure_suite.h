// What must never be a hang: calls that do not match, ranks that leave, ranks that never come. Every rank gets a
// CommError that names the operation, the group and the ranks. Each binary of tests that includes this says for which
// backends.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <atomic>
#include <thread>

#include "tensor_device.h"
#include "thread_ranks.h"
#include "trireme/base/error.h"
#include "trireme/base/shared_library.h"

namespace trireme::comm::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

at::Tensor floats(int64_t n, at::ScalarType dtype = at::kFloat) {
  return at::zeros({n}, at::device(tensor_device).dtype(dtype));
}

struct FailingBackend {
  const char* name;
  bool on_device = false;
};

class Failure : public ::testing::TestWithParam<FailingBackend> {
 protected:
  void SetUp() override {
    if (!GetParam().on_device) return;
    if (!base::gpu_present()) GTEST_SKIP() << "this machine has no GPU";
    // CUDA starts here, not within the short timeouts.
    for (const std::string& error : run([](Communicator& c) { c.broadcast(floats(1), 0)->wait(); }))
      ASSERT_EQ(error, "");
  }

  // Runs two ranks and returns what each of them threw.
  std::vector<std::string> run(const RankBody& body, std::chrono::milliseconds timeout = 60s) {
    return run_thread_ranks(
        {.backend = GetParam().name, .size = 2, .timeout = timeout, .on_device = GetParam().on_device}, body);
  }
};

TEST_P(Failure, ARankWithPatienceWaitsLongerThanTheTimeout) {
  if (GetParam().on_device) GTEST_SKIP() << "no rank waits on a GPU for work of unknown length";
  const auto errors = run(
      [](Communicator& c) {
        at::Tensor t = floats(8);
        c.barrier()->wait();
        const Patience patience(c);
        if (c.rank() == 1) std::this_thread::sleep_for(2500ms);
        c.all_reduce(t, t, {})->wait();
      },
      1s);
  for (const std::string& e : errors) EXPECT_EQ(e, "");
}

TEST_P(Failure, DifferentSizesAreNamedOnBothRanks) {
  const auto errors = run([](Communicator& c) {
    at::Tensor t = floats(c.rank() == 0 ? 1000 : 1001);
    c.all_reduce(t, t, {})->wait();
  });
  for (const std::string& e : errors)
    EXPECT_THAT(
        e, AllOf(HasSubstr("all_reduce #0"), HasSubstr("group 'shard'"), HasSubstr("different sizes"),
                 HasSubstr("float32[1000]"), HasSubstr("float32[1001]"), HasSubstr("rank 0"), HasSubstr("rank 1")));
}

TEST_P(Failure, DifferentOperationsAreNamedOnBothRanks) {
  const auto errors = run([](Communicator& c) {
    at::Tensor t = floats(8);
    c.barrier()->wait();
    (c.rank() == 0 ? c.broadcast(t, 0) : c.barrier())->wait();
  });
  for (const std::string& e : errors)
    EXPECT_THAT(
        e, AllOf(HasSubstr("#1"), HasSubstr("different operations"), HasSubstr("broadcast("), HasSubstr("barrier(")));
}

TEST_P(Failure, DifferentDtypesAreNamedOnBothRanks) {
  const auto errors = run([](Communicator& c) {
    at::Tensor t = floats(8, c.rank() == 0 ? at::kFloat : at::kInt);
    c.all_reduce(t, t, {})->wait();
  });
  for (const std::string& e : errors)
    EXPECT_THAT(e, AllOf(HasSubstr("different dtypes"), HasSubstr("float32[8]"), HasSubstr("int32[8]")));
}

TEST_P(Failure, DifferentRootsReductionsAndCountsAreNamed) {
  const std::pair<const char*, RankBody> calls[] = {
      {"different roots", [](Communicator& c) { c.broadcast(floats(8), c.rank())->wait(); }},
      {"different reductions",
       [](Communicator& c) {
         at::Tensor t = floats(8);
         c.all_reduce(t, t, {.op = c.rank() == 0 ? ReduceOp::sum : ReduceOp::max})->wait();
       }},
      {"different counts",
       [](Communicator& c) {
         const std::vector<int64_t> counts = c.rank() == 0 ? std::vector<int64_t>{3, 5} : std::vector<int64_t>{4, 4};
         c.reduce_scatter(floats(counts[c.rank()]), floats(8), counts, {})->wait();
       }},
      {"slices exchanged differ", [](Communicator& c) {
         const std::vector<int64_t> in = c.rank() == 0 ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{3, 1};
         const std::vector<int64_t> out = c.rank() == 0 ? std::vector<int64_t>{1, 4} : std::vector<int64_t>{2, 1};
         c.all_to_all(floats(out[0] + out[1]), floats(in[0] + in[1]), out, in)->wait();
       }}};
  for (const auto& [what, body] : calls)
    for (const std::string& e : run(body)) EXPECT_THAT(e, HasSubstr(what));
}

TEST_P(Failure, MessageOfAnotherSizeIsRefused) {
  const auto errors = run([](Communicator& c) {
    if (c.rank() == 0) return c.send(floats(10), 1)->wait();
    c.receive(floats(11), 0)->wait();
  });
  EXPECT_THAT(errors[1], AllOf(HasSubstr("receive #0"), HasSubstr("float32[10]"), HasSubstr("float32[11]")));
}

TEST_P(Failure, TheGroupIsUnusableAfterwards) {
  const auto errors = run([](Communicator& c) {
    EXPECT_THROW(c.broadcast(floats(8), c.rank())->wait(), CommError);
    EXPECT_THROW(c.barrier()->wait(), CommError);
    c.barrier()->wait();
  });
  for (const std::string& e : errors) EXPECT_THAT(e, HasSubstr("different roots"));
}

TEST_P(Failure, RankThatLeavesIsNamedByTheOther) {
  const auto start = std::chrono::steady_clock::now();
  const auto errors = run([](Communicator& c) {
    c.barrier()->wait();
    if (c.rank() == 1) throw std::runtime_error("out of luck");
    at::Tensor t = floats(100'000);
    c.all_reduce(t, t, {})->wait();
  });
  EXPECT_EQ(errors[1], "out of luck");
  EXPECT_THAT(errors[0], AllOf(HasSubstr("all_reduce #1"), HasSubstr("group 'shard'"), HasSubstr("rank 1")));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 30s);
}

TEST_P(Failure, RankThatNeverCallsIsATimeoutOnBoth) {
  std::atomic<bool> gave_up = false;
  const auto errors = run(
      [&](Communicator& c) {
        c.barrier()->wait();
        if (c.rank() == 1)
          while (!gave_up) std::this_thread::sleep_for(1ms);
        try {
          c.barrier()->wait();
        } catch (const CommError& error) {
          EXPECT_EQ(error.details.operation, "barrier");
          EXPECT_EQ(error.details.group, "shard");
          EXPECT_EQ(error.details.global_rank, c.rank());
          if (c.rank() == 0) {
            EXPECT_EQ(error.details.peer_rank, 1);
            EXPECT_GE(error.details.elapsed, 200ms);
          }
          gave_up = true;
          throw;
        }
      },
      200ms);
  EXPECT_THAT(errors[0], AllOf(HasSubstr("barrier #1"), HasSubstr("rank 1 (global rank 1)")));
  EXPECT_THAT(errors[1], HasSubstr("barrier #1"));
}

TEST_P(Failure, PollingAlsoEndsInATimeout) {
  std::atomic<bool> gave_up = false;
  const auto errors = run(
      [&](Communicator& c) {
        c.barrier()->wait();
        if (c.rank() == 1) {
          while (!gave_up) std::this_thread::sleep_for(1ms);
          return;
        }
        const auto work = c.barrier();
        try {
          while (!work->poll()) std::this_thread::sleep_for(1ms);
        } catch (...) {
          gave_up = true;
          throw;
        }
      },
      200ms);
  EXPECT_THAT(errors[0], AllOf(HasSubstr("barrier #1"), HasSubstr("rank 1 (global rank 1)")));
}

TEST_P(Failure, RankThatNeverJoinsIsATimeout) {
  for (const int present : {0, 1}) {
    std::string text;
    std::jthread([&] {
      try {
        make_communicator({.name = "shard",
                           .backend = std::string(GetParam().name) == kSealedGloo ? "gloo" : GetParam().name,
                           .rank = present,
                           .size = 2,
                           .store = fresh_store(),
                           .timeout = 300ms,
                           .on_device = GetParam().on_device});
      } catch (const CommError& error) {
        text = error.what();
        EXPECT_EQ(error.details.operation, "connect");
      }
    }).join();
    EXPECT_THAT(text, AllOf(HasSubstr("connect of group 'shard'"), HasSubstr("300 ms")));
  }
}

}  // namespace
}  // namespace trireme::comm::testing
