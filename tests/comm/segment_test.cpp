// What waiting and calling cost on a segment: no processor time while others are busy, no memory once a call of its
// kind has been made, and spinning only where every rank has a core.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <thread>

#include "comm_checks.h"
#include "thread_ranks.h"
#include "trireme/base/error.h"
#include "trireme/comm/shared_memory/mapping.h"
#include "trireme/comm/shared_memory/segment.h"

namespace {
thread_local int64_t allocations = 0;
}  // namespace

#ifndef TRIREME_SANITIZED  // whose runtime has its own
namespace {
void* counted(size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(size_t bytes) { return counted(bytes); }
void* operator new[](size_t bytes) { return counted(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return ++allocations, std::malloc(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return ++allocations, std::malloc(bytes); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
#endif

namespace trireme::comm::testing {
namespace {

using namespace std::chrono_literals;

std::chrono::microseconds processor_time() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  const auto us = [](const timeval& t) { return std::chrono::microseconds(t.tv_sec * 1'000'000 + t.tv_usec); };
  return us(usage.ru_utime) + us(usage.ru_stime);
}

class Segment : public ::testing::TestWithParam<const char*> {};

TEST_P(Segment, RanksThatWaitLeaveTheirCoresToOthers) {
  const auto errors = run_thread_ranks({.backend = GetParam(), .size = 6}, [](Communicator& c) {
    c.barrier()->wait();
    if (c.rank() == 5) std::this_thread::sleep_for(500ms);
    const auto before = processor_time();
    c.barrier()->wait();
    EXPECT_LT(processor_time() - before, 50ms) << "rank " << c.rank();
  });
  for (const std::string& e : errors) EXPECT_EQ(e, "");
}

// While it lives, this thread and those it starts run on one core.
class OneCore {
 public:
  OneCore() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    int core = 0;
    while (!CPU_ISSET(core, &before_)) ++core;
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OneCore() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

TEST_P(Segment, RepeatedCallsAllocateNothing) {
  const auto errors = run_thread_ranks({.backend = GetParam(), .size = 2}, [](Communicator& c) {
    at::Tensor small = at::zeros({1024}), large = at::zeros({100'000}), shard = at::zeros({512});
    const std::vector<int64_t> counts{512, 512};
    const auto step = [&] {
      c.all_reduce(small, small, {})->wait();
      c.all_reduce(large, large, {})->wait();
      c.reduce_scatter(shard, small, counts, {})->wait();
      c.all_gather(small, shard, counts)->wait();
      c.broadcast(small, 0)->wait();
      c.barrier()->wait();
    };
    for (int i = 0; i < 5; ++i) step();
    const int64_t before = allocations;
    for (int i = 0; i < 100; ++i) step();
    EXPECT_EQ(allocations - before, 0);
  });
  for (const std::string& e : errors) EXPECT_EQ(e, "");
}

// Waits long enough to look after the peers, with each rank in turn the one that the others wait for.
TEST_P(Segment, LateRanksMakeNobodyAllocate) {
  for (const bool one_core : {false, true}) {
    std::optional<OneCore> here;
    if (one_core) here.emplace();
    const auto errors = run_thread_ranks({.backend = GetParam(), .size = 2}, [](Communicator& c) {
      at::Tensor small = at::zeros({1024}), large = at::zeros({100'000});
      const auto step = [&](int late) {
        for (at::Tensor* x : {&small, &large}) {
          if (c.rank() == late) std::this_thread::sleep_for(50ms);
          c.all_reduce(*x, *x, {})->wait();
        }
      };
      step(0);
      const int64_t before = allocations;
      for (const int late : {1, 0}) step(late);
      EXPECT_EQ(allocations - before, 0) << "rank " << c.rank();
    });
    for (const std::string& e : errors) EXPECT_EQ(e, "");
  }
}

TEST_P(Segment, RanksOnOneCorePassTheSuite) {
  const OneCore here;
  for (const int size : {3})
    for (const Check& check : all_checks()) {
      if (std::string(check.name) == "Large") continue;  // no small calls, and for powers of two only
      const auto errors = run_thread_ranks({.backend = GetParam(), .size = size}, check.run);
      for (const std::string& e : errors) EXPECT_EQ(e, "") << check.name << " with " << size << " ranks";
    }
}

TEST_P(Segment, RanksOnOneCoreKeepManySmallCallsApart) {
  const OneCore here;
  const auto errors = run_thread_ranks({.backend = GetParam(), .size = 3}, [](Communicator& c) {
    constexpr int kCalls = 200;  // more than there are eager slots, and than a rank may be ahead
    const std::vector<int64_t> counts{5, 0, 7};
    std::vector<at::Tensor> sums, slices, wholes;
    std::vector<WorkPtr> works;
    for (int i = 0; i < kCalls; ++i) {
      const at::Tensor x = (at::arange(12) + i * (c.rank() + 1)).to(at::kBFloat16);
      sums.push_back(at::zeros({12}));
      slices.push_back(at::ones({counts[c.rank()]}));
      wholes.push_back(at::zeros({12}));
      works.push_back(c.all_reduce(sums.back(), x, {}));
      works.push_back(c.reduce_scatter(slices.back(), x, counts, {.accumulate = i % 2 == 1}));
      works.push_back(c.all_gather(wholes.back(), at::full({counts[c.rank()]}, float(i + c.rank())), counts));
      if (i % 3 == c.rank()) works.back()->wait();
    }
    for (const WorkPtr& work : works) work->wait();
    for (int i = 0; i < kCalls; ++i) {
      at::Tensor sum = at::zeros({12});
      for (int k = 0; k < 3; ++k) sum += (at::arange(12) + i * (k + 1)).to(at::kBFloat16);
      EXPECT_TRUE(at::equal(sums[i], sum)) << "call " << i;
      const at::Tensor slice = sum.narrow(0, c.rank() == 0 ? 0 : 5, counts[c.rank()]);
      EXPECT_TRUE(at::equal(slices[i], i % 2 == 1 ? slice + 1 : slice)) << "call " << i;
      EXPECT_TRUE(at::equal(wholes[i], at::cat({at::full({5}, float(i)), at::full({7}, float(i + 2))})))
          << "call " << i;
    }
  });
  for (const std::string& e : errors) EXPECT_EQ(e, "");
}

// Else ranks that wait in two groups for each other's small calls would wait for ever.
TEST_P(Segment, RanksOnOneCoreNeedNoMoreOfTheLastThanItsCall) {
  const OneCore here;
  std::atomic<int> done = 0;
  const auto errors = run_thread_ranks({.backend = GetParam(), .size = 3}, [&](Communicator& c) {
    at::Tensor x = at::ones({12});
    if (c.rank() == 2) std::this_thread::sleep_for(100ms);
    const WorkPtr work = c.all_reduce(x, x, {});
    const auto start = std::chrono::steady_clock::now();
    while (c.rank() == 2 && done < 2 && std::chrono::steady_clock::now() - start < 3s) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(c.rank() != 2 || done == 2);
    work->wait();
    ++done;
    EXPECT_EQ(x[11].item<float>(), 3);
  });
  for (const std::string& e : errors) EXPECT_EQ(e, "");
}

// Each rank goes on to write its slice of the one output at once: nobody may still be writing there.
TEST_P(Segment, RanksOnOneCoreGatherIntoTheOneOutput) {
  const OneCore here;
  const auto errors = run_thread_ranks({.backend = GetParam(), .size = 4}, [](Communicator& c) {
    const SharedBuffer buffer = c.allocate_shared(4096, true);
    const at::Tensor whole = at::from_blob(buffer.mine, {40}, at::kFloat), mine = whole.narrow(0, c.rank() * 10, 10);
    const std::vector<int64_t> counts(4, 10);
    for (int i = 0; i < 300; ++i) {
      mine.fill_(i * (c.rank() + 1));
      c.all_gather(whole, mine, counts)->wait();
      for (int k = 0; k < 4; ++k) EXPECT_EQ(whole[k * 10 + 9].item<float>(), i * (k + 1));
      c.barrier()->wait();
    }
  });
  for (const std::string& e : errors) EXPECT_EQ(e, "");
}

TEST_P(Segment, RanksOnOneCoreAllLearnThatCallsDoNotMatch) {
  const OneCore here;
  for (const int odd : {0, 2}) {
    const auto errors = run_thread_ranks({.backend = GetParam(), .size = 3}, [odd](Communicator& c) {
      const at::Tensor x = at::zeros({c.rank() == odd ? 20'000 : 12}), part = at::zeros({4});
      const std::vector<int64_t> counts(3, 4);
      EXPECT_THROW(c.rank() == odd ? c.all_reduce(x, x, {})->wait() : c.reduce_scatter(part, x, counts, {})->wait(),
                   CommError);
      EXPECT_THROW(c.barrier()->wait(), CommError);
    });
    for (const std::string& e : errors) EXPECT_EQ(e, "");
  }
}

TEST_P(Segment, RanksOnOneCoreLearnThatOneIsGone) {
  const OneCore here;
  const auto errors = run_thread_ranks({.backend = GetParam(), .size = 3}, [](Communicator& c) {
    c.barrier()->wait();
    if (c.rank() == 1) return;
    EXPECT_THROW(c.barrier()->wait(), CommError);
  });
  for (const std::string& e : errors) EXPECT_EQ(e, "");
}

INSTANTIATE_TEST_SUITE_P(Communicator, Segment, ::testing::Values("threads", "shm"),
                         [](const auto& info) { return std::string(info.param); });

// Joins ranks from threads that may run on the cores named, and asks whether each can have one.
bool has_cores(const std::vector<std::vector<int>>& cores_by_rank) {
  const auto segment = make_thread_segment(static_cast<int>(cores_by_rank.size()));
  for (int k = 0; k < segment->size(); ++k) {
    segment->join(k);
    std::memset(segment->rank(k).cores, 0, sizeof segment->rank(k).cores);
    for (const int core : cores_by_rank[k]) segment->rank(k).cores[core / 64] |= uint64_t{1} << (core % 64);
  }
  return segment->has_core_for_each_rank();
}

TEST(Cores, RanksOnOneCoreMustShareIt) {
  EXPECT_TRUE(has_cores({{0}, {1}}));
  EXPECT_TRUE(has_cores({{1500}, {8191}}));
  EXPECT_FALSE(has_cores({{1500}, {1500}}));
  EXPECT_FALSE(has_cores({{70}, {70}}));
  EXPECT_FALSE(has_cores({{0, 1}, {0, 1}, {0, 1}}));
}

TEST(Cores, AFreeRankMakesRoomForAPinnedOne) {
  EXPECT_TRUE(has_cores({{0, 1}, {0, 1, 2}, {0}}));
  EXPECT_FALSE(has_cores({{0, 1}, {0, 1}, {0}}));
}

TEST(Cores, JoiningTellsWhereTheRankMayRun) {
  const auto segment = make_thread_segment(1);
  cpu_set_t mine;
  ASSERT_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
  segment->join(0);
  EXPECT_EQ(std::memcmp(&mine, segment->rank(0).cores, sizeof mine), 0);
}

TEST(Mappings, TouchedMemoryIsThereAndZero) {
#ifdef TRIREME_SANITIZED
  GTEST_SKIP() << "the sanitizer's shadow of the memory faults in as it is read";
#endif
  const int64_t bytes = (5 << 20) + 4096, huge = 2 << 20;
  for (const bool shared : {false, true}) {
    const auto mapping = shared ? Mapping::create_shared(bytes, bytes, "a test", Mapping::Pages::later)
                                : Mapping::create_private(bytes, bytes, "a test");
    EXPECT_EQ(mapping->touch(4096, bytes - 4096), "");
    rusage before{}, after{};
    getrusage(RUSAGE_THREAD, &before);
    const auto* data = static_cast<const unsigned char*>(mapping->data());
    int64_t sum = 0;
    for (int64_t i = 4096; i < bytes; i += 512) sum += data[i];
    getrusage(RUSAGE_THREAD, &after);
    EXPECT_EQ(sum, 0);
    EXPECT_LT(after.ru_minflt - before.ru_minflt, 100) << "of " << bytes / 4096 << " pages";
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % huge, 0U) << "huge pages need their boundary";
  }
}

}  // namespace
}  // namespace trireme::comm::testing
