#include "trireme/schedule/placement.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "example.h"

namespace trireme::schedule {
namespace {

// Written without live_bytes(): bytes that are between first and last use, action by action.
int64_t brute_force_bound(const Schedule& s) {
  std::array<int64_t, kNumMemories> bound{};
  for (int t = 0; t < static_cast<int>(s.actions.size()); ++t) {
    std::array<int64_t, kNumMemories> now{};
    for (const Value& v : s.values) {
      bool taken_over_now = v.takes_over >= 0 && s.values[v.takes_over].last >= t;
      if (v.first >= 0 && v.first <= t && t <= v.last && !taken_over_now)
        now[static_cast<int>(v.memory)] += (v.bytes + kValueAlignment - 1) / kValueAlignment * kValueAlignment;
    }
    for (int m = 0; m < kNumMemories; ++m) bound[m] = std::max(bound[m], now[m]);
  }
  return std::accumulate(bound.begin(), bound.end(), int64_t{0});
}

TEST(Placement, ValuesAliveTogetherNeverShareBytes) {
  rc::check([] {
    StepDeclaration d = example_step(*rc::gen::inRange(1, 6), *rc::gen::element(1, 2, 4), *rc::gen::arbitrary<bool>(),
                                     *rc::gen::inRange(1, 4));
    d.prefetch.depth = *rc::gen::inRange(0, 4);
    d.reduce_lag = *rc::gen::inRange(0, 4);
    if (*rc::gen::arbitrary<bool>()) recompute_everything(d);
    for (UnitDeclaration& u : d.units)
      for (auto* tensors : {&u.saved, &u.forward_work, &u.backward_work})
        for (TensorDeclaration& t : *tensors) t.bytes = *rc::gen::inRange<int64_t>(1, 100000);
    std::vector<Schedule> lists{training_schedule(d)};
    const Arena arena = place(lists);
    const Schedule& s = lists[0];
    for (size_t a = 0; a < s.values.size(); ++a)
      for (size_t b = a + 1; b < s.values.size(); ++b) {
        const Value &x = s.values[a], &y = s.values[b];
        if (x.memory != y.memory || x.last < y.first || y.last < x.first || y.takes_over == static_cast<int>(a))
          continue;
        RC_ASSERT(x.offset + x.bytes <= y.offset || y.offset + y.bytes <= x.offset);
      }
    for (const Value& v : s.values)
      RC_ASSERT(v.offset >= 0 && v.offset + v.bytes <= arena.bytes[static_cast<int>(v.memory)]);
  });
}

// More values than the search keeps in one block, and than it places by one thread.
TEST(Placement, ThousandsOfValuesNeverShareBytes) {
  std::mt19937_64 random(7);
  const auto below = [&](int most) { return static_cast<int>(random() % static_cast<uint64_t>(most)); };
  constexpr int kActions = 600, kValues = 3000;
  std::vector<Schedule> lists(1);
  Schedule& s = lists[0];
  s.actions.resize(kActions);
  for (int v = 0; v < kValues; ++v) {
    const int first = below(kActions), last = std::min(kActions - 1, first + below(v % 3 == 0 ? kActions : 20));
    s.values.push_back({.kind = ValueKind::work, .bytes = 1 + below(1 << 20), .alignment = v % 5 == 0 ? 4096 : 64});
    for (const int t : {first, last}) s.actions[static_cast<size_t>(t)].uses.push_back({v, Access::read});
  }
  const Arena arena = place(lists);
  std::vector<const Value*> by_offset;
  for (const Value& v : s.values) by_offset.push_back(&v);
  std::ranges::sort(by_offset, {}, &Value::offset);
  for (size_t a = 0; a < by_offset.size(); ++a) {
    const Value& x = *by_offset[a];
    EXPECT_TRUE(x.offset >= 0 && x.offset % x.alignment == 0 && x.offset + x.bytes <= arena.total());
    for (size_t b = a + 1; b < by_offset.size() && by_offset[b]->offset < x.offset + x.bytes; ++b)
      EXPECT_TRUE(by_offset[b]->last < x.first || x.last < by_offset[b]->first) << a << " and " << b;
  }
  EXPECT_LT(double(arena.total()), 1.05 * double(brute_force_bound(s)));
}

TEST(Placement, TheArenaIsWithinOnePercentOfTheLivenessBound) {
  for (bool shard : {false, true})
    for (bool recompute : {false, true}) {
      StepDeclaration d = example_step(12, 2, shard, 4);
      if (recompute) recompute_everything(d);
      std::vector<Schedule> lists{training_schedule(d)};
      const Arena arena = place(lists);
      const int64_t bound = brute_force_bound(lists[0]);
      EXPECT_GE(arena.total(), bound);
      EXPECT_LE(double(arena.total()), 1.01 * double(bound)) << "shard " << shard << ", recompute " << recompute;
    }
}

TEST(Placement, LiveBytesAgreeWithTheBruteForceSum) {
  std::vector<Schedule> lists{training_schedule(example_step(5, 2, true, 3))};
  place(lists);
  std::array<int64_t, kNumMemories> bound{};
  for (const auto& live : live_bytes(lists[0]))
    for (int m = 0; m < kNumMemories; ++m) bound[m] = std::max(bound[m], live[m]);
  EXPECT_EQ(std::accumulate(bound.begin(), bound.end(), int64_t{0}), brute_force_bound(lists[0]));
}

TEST(Placement, RecomputationAndShardingLowerThePeak) {
  const auto total = [](bool shard, bool recompute) {
    StepDeclaration d = example_step(12, 4, shard, 1);
    if (recompute) recompute_everything(d);
    std::vector<Schedule> lists{training_schedule(d)};
    return place(lists).total();
  };
  EXPECT_LT(total(true, false), total(false, false));
  EXPECT_LT(total(true, true), total(true, false));
}

TEST(Placement, AllListsOfAnArenaHaveTheirPersistentValuesAtTheSamePlace) {
  const StepDeclaration d = example_step();
  std::vector<Schedule> lists{training_schedule(d), evaluation_schedule(d)};
  const Arena arena = place(lists);
  for (size_t i = 0; lists[0].values[i].persistent; ++i)
    EXPECT_EQ(lists[0].values[i].offset, lists[1].values[i].offset);
  EXPECT_GT(arena.persistent[0], 0);
}

}  // namespace
}  // namespace trireme::schedule
