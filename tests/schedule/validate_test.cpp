#include "trireme/schedule/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "example.h"

namespace trireme::schedule {
namespace {

using testing::HasSubstr;

struct Placed {
  std::vector<Schedule> lists;
  Arena arena;
};

Placed placed(int ranks = 2, bool shard = true) {
  Placed p;
  p.lists = {training_schedule(example_step(3, ranks, shard, 2))};
  p.arena = place(p.lists);
  return p;
}

std::vector<RankProgram> programs(const std::vector<Schedule>& lists) {
  std::vector<int> everyone;
  for (size_t r = 0; r < lists.size(); ++r) everyone.push_back(static_cast<int>(r));
  std::vector<RankProgram> out;
  for (const Schedule& s : lists) out.push_back({&s, {{Queue::gather, everyone}, {Queue::reduce, everyone}}});
  return out;
}

int find_action(const Schedule& s, ActionKind kind, int nth = 0) {
  for (size_t i = 0; i < s.actions.size(); ++i)
    if (s.actions[i].kind == kind && nth-- == 0) return static_cast<int>(i);
  return -1;
}

TEST(Validate, EveryStrategyOfTheBuilderIsRight) {
  for (int ranks : {1, 2, 4})
    for (bool shard : {false, true})
      for (int prefetch : {0, 1, 3})
        for (int lag : {0, 1, 2}) {
          StepDeclaration d = example_step(4, ranks, shard, 3);
          d.prefetch = prefetch;
          d.reduce_lag = lag;
          std::vector<Schedule> lists{training_schedule(d), evaluation_schedule(d)};
          const Arena arena = place(lists);
          for (const Schedule& s : lists) EXPECT_THAT(validate_list(s, arena), testing::IsEmpty());
          const std::vector<Schedule> all(ranks, lists[0]);
          EXPECT_THAT(validate_ranks(programs(all), arena), testing::IsEmpty());
        }
}

TEST(Validate, NamesTwoValuesThatShareBytes) {
  Placed p = placed();
  Schedule& s = p.lists[0];
  const int a = s.find(ValueKind::tokens, -1, 0), b = s.find(ValueKind::targets, -1, 0);
  s.values[a].offset = s.values[b].offset;
  EXPECT_THAT(validate_list(s, p.arena), testing::Contains(HasSubstr("share bytes")));
}

TEST(Validate, NamesAReadBeforeItsWrite) {
  Placed p = placed();
  Schedule& s = p.lists[0];
  std::swap(s.actions[find_action(s, ActionKind::load_batch)], s.actions[find_action(s, ActionKind::forward)]);
  EXPECT_THAT(validate_list(s, p.arena), testing::Contains(HasSubstr("before anything wrote it")));
}

TEST(Validate, NamesAGatherThatIsReadWhileUnderWay) {
  Placed p = placed();
  Schedule& s = p.lists[0];
  s.actions[find_action(s, ActionKind::unshard)].completes_at += 2;
  p.arena = place(p.lists);
  EXPECT_THAT(validate_list(s, p.arena), testing::Contains(HasSubstr("still under way")));
}

TEST(Validate, NamesAGradientThatIsNeverReducedOrTwice) {
  Placed p = placed();
  Schedule& s = p.lists[0];
  const int first = find_action(s, ActionKind::reduce_gradient);
  Schedule missing = s;
  missing.actions[first].kind = ActionKind::gather_loss;
  EXPECT_THAT(validate_list(missing, p.arena), testing::Contains(HasSubstr("never reduced")));
  Schedule twice = s;
  twice.actions[find_action(s, ActionKind::reduce_gradient, 1)].uses = s.actions[first].uses;
  EXPECT_THAT(validate_list(twice, p.arena), testing::Contains(HasSubstr("reduced 2 times")));
}

TEST(Validate, PrintsTheCycleWhenTwoRanksGatherInAnotherOrder) {
  Placed p = placed();
  std::vector<Schedule> lists(2, p.lists[0]);
  const int a = find_action(lists[1], ActionKind::unshard, 0), b = find_action(lists[1], ActionKind::unshard, 2);
  std::swap(lists[1].actions[a].owner, lists[1].actions[b].owner);
  const auto problems = validate_ranks(programs(lists), p.arena);
  EXPECT_THAT(problems, testing::Contains(HasSubstr("wait for each other")));
  EXPECT_THAT(problems, testing::Contains(HasSubstr("rank 0")));
  EXPECT_THAT(problems, testing::Contains(HasSubstr("rank 1")));
}

TEST(Validate, ARankThatLeavesOutACollectiveIsAStall) {
  Placed p = placed();
  std::vector<Schedule> lists(2, p.lists[0]);
  lists[1].actions[find_action(lists[1], ActionKind::reduce_gradient)].queue = Queue::compute;
  EXPECT_TRUE(run_queue_model(programs(lists)).has_value());
}

// Damages a right list at random: whatever changes what is computed must be found.
TEST(Validate, FindsMutations) {
  std::mt19937 random(7);
  const int campaigns = std::getenv("TRIREME_SLOW") != nullptr ? 2000 : 200;
  for (int n = 0; n < campaigns; ++n) {
    Placed p = placed();
    std::vector<Schedule> lists(2, p.lists[0]);
    Schedule& s = lists[1];
    const int kind = static_cast<int>(random() % 3);
    if (kind == 0) {  // a transient value moves onto another that is alive with it
      std::vector<std::pair<int, int>> pairs;
      for (size_t a = 0; a < s.values.size(); ++a)
        for (size_t b = 0; b < s.values.size(); ++b)
          if (a != b && s.values[a].memory == s.values[b].memory && s.values[a].first <= s.values[b].first &&
              s.values[b].first <= s.values[a].last && s.values[b].takes_over != static_cast<int>(a) &&
              s.values[a].takes_over != static_cast<int>(b) && !s.values[b].persistent)
            pairs.emplace_back(a, b);
      const auto [a, b] = pairs[random() % pairs.size()];
      s.values[b].offset = s.values[a].offset;
    } else if (kind == 1) {  // two collectives of one rank change places
      std::vector<int> gathers;
      for (size_t i = 0; i < s.actions.size(); ++i)
        if (s.actions[i].kind == ActionKind::unshard) gathers.push_back(static_cast<int>(i));
      const int a = gathers[random() % gathers.size()], b = gathers[random() % gathers.size()];
      if (s.actions[a].owner == s.actions[b].owner) continue;
      std::swap(s.actions[a].owner, s.actions[b].owner);
    } else {  // a reduction is lost
      const int i = find_action(s, ActionKind::reduce_gradient, static_cast<int>(random() % 10));
      s.actions.erase(s.actions.begin() + i);
      for (Action& a : s.actions)
        if (a.completes_at > i) --a.completes_at;
      place({&s, 1});
    }
    EXPECT_FALSE(validate_ranks(programs(lists), p.arena).empty()) << "mutation " << n << " of kind " << kind;
  }
}

}  // namespace
}  // namespace trireme::schedule
