// What waiting and calling cost on a segment: no processor time while others are busy, no memory once a call of its
// kind has been made, and spinning only where every rank has a core.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include "thread_ranks.h"
#include "trireme/comm/mapping.h"
#include "trireme/comm/segment.h"

namespace {
thread_local int64_t allocations = 0;

void* counted(size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(size_t bytes) { return counted(bytes); }
void* operator new[](size_t bytes) { return counted(bytes); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }

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

TEST_P(Segment, RepeatedCallsAllocateNothing) {
  const auto errors = run_thread_ranks({.backend = GetParam(), .size = 2}, [](Communicator& c) {
    at::Tensor small = at::zeros({1024}), large = at::zeros({100'000});
    const auto step = [&] {
      c.all_reduce(small, small, {})->wait();
      c.all_reduce(large, large, {})->wait();
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
    EXPECT_LE(mapping->huge_page_bytes(), bytes);
    EXPECT_EQ(mapping->huge_page_bytes() % huge, 0);
  }
}

}  // namespace
}  // namespace trireme::comm::testing
