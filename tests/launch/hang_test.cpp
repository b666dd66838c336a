// The verdict on a hang, from recorders made by hand.
#include <functional>

#include "trireme/launch/hang/hang.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/launch/job.h"
#include "trireme/base/process.h"
#include "trireme/launch/supervise/headline.h"

namespace trireme::launch {
namespace {

using base::CallState;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr std::int64_t kSecond = 1'000'000, kStart = 1'000 * kSecond, kNow = 1'100 * kSecond;

// One rank's recorder: groups it is in, calls it has made, what it waits for.
class Rank {
 public:
  explicit Rank(int global_rank, int world_size = 4) {
    auto& h = view_.log.header;
    h.global_rank = global_rank;
    h.world_size = world_size;
    h.pid = 4000 + global_rank;
    h.host = "a boot";
    h.step = 812;
    h.since_us = kStart;
    view_.process = ProcessLook{.state = 'S', .waits_in = "futex_wait"};
  }
  Rank& in(std::string_view name, std::vector<int> members) {
    auto& h = view_.log.header;
    auto& g = h.groups[h.num_groups++];
    g.name = name;
    g.size = static_cast<int>(members.size());
    for (int i = 0; i < g.size; ++i) {
      g.members[i] = members[static_cast<std::size_t>(i)];
      g.key = g.key * 31 + static_cast<std::uint64_t>(g.members[i]) + 1;
      if (g.members[i] == h.global_rank) g.rank = i;
    }
    g.key += std::hash<std::string_view>()(name);
    return *this;
  }
  Rank& calls(std::string_view group, CallState state = CallState::finished, std::string_view operation = "all_gather",
              int peer = -1) {
    auto& h = view_.log.header;
    base::FlightRecord r{};
    r.id = ++h.last_id;
    r.group = group;
    r.operation = operation;
    r.operation_code = static_cast<std::uint8_t>(operation.size());
    r.dtype = "bfloat16";
    r.elements = 1 << 20;
    r.bytes = 2 << 20;
    r.step = h.step;
    r.peer = peer;
    r.state = state;
    r.action = "Unshard(block 7)";
    r.started_us = kStart + static_cast<std::int64_t>(r.id);
    r.finished_us = state == CallState::started ? 0 : r.started_us;
    for (int i = 0; i < h.num_groups; ++i)
      if (h.groups[i].name.view() == group && peer < 0) r.sequence = h.groups[i].num_calls++;
    view_.log.records.push_back(r);
    return *this;
  }
  /// For the call made last.
  Rank& waits(std::int64_t since_us = kStart) {
    view_.log.header.waiting_id = view_.log.header.last_id;
    view_.log.header.waiting_since_us = since_us;
    return *this;
  }
  Rank& gave_up(std::int64_t at_us) {
    view_.log.header.gave_up_us = at_us;
    return *this;
  }
  Rank& does(std::string_view action, ProcessLook look = {.state = 'S', .waits_in = "hrtimer_nanosleep"}) {
    view_.log.header.action = action;
    view_.process = look;
    return *this;
  }
  operator RankView() const { return view_; }  // NOLINT: the tests' shorthand

 private:
  RankView view_{};
};

std::string sentence(const std::vector<RankView>& ranks) {
  const auto verdict = find_hang(ranks, kNow);
  return verdict ? verdict->sentence : "";
}

const std::vector<int> kAll = {0, 1, 2, 3};

Rank waiting(int rank) {
  return Rank(rank).in("gather", kAll).calls("gather").calls("gather", CallState::started).waits();
}

TEST(Hang, WhoHasNotJoinedIsNamedWithTheCallAndWhatItDoes) {
  const auto verdict = find_hang(
      std::vector<RankView>{waiting(0), Rank(1).in("gather", kAll).calls("gather").does("Forward(block 9, mb 0)"),
                            waiting(2), waiting(3)},
      kNow);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->sentence,
            "rank 1 has not joined all_gather #1 of group gather (Unshard(block 7) of step 812, 1,048,576 bfloat16, "
            "2.00 MiB) for 1m40s; it sleeps in hrtimer_nanosleep, in Forward(block 9, mb 0) of step 812 for 1m40s");
  EXPECT_THAT(verdict->stuck, ElementsAre(1));
  EXPECT_THAT(verdict->details, HasSubstr("  rank 1 is process 4001 on a\n"));
  EXPECT_THAT(verdict->details, HasSubstr("  ranks 0, 2, 3 wait for it\n"));
  EXPECT_EQ(verdict->waited_us, 100 * kSecond);
  EXPECT_EQ(
      verdict->key,
      "hang of rank 1 in all_gather of group gather (Unshard(block 7) of step 812, 1,048,576 bfloat16, 2.00 MiB)");
}

TEST(Hang, StoppedEndedAndBusyRanksAreToldApart) {
  const auto with = [](ProcessLook look) {
    return sentence({waiting(0), Rank(1).in("gather", kAll).calls("gather").does("Forward(block 9)", look), waiting(2),
                     waiting(3)});
  };
  EXPECT_THAT(with({.state = 'T'}), HasSubstr("; it is stopped by a signal"));
  EXPECT_THAT(with({.state = 'R', .cores = 1}),
              HasSubstr("; it computes (1.0 cores busy), in Forward(block 9) of step"));
  EXPECT_THAT(with({.state = 0}), HasSubstr("; it has ended, in Forward(block 9) of step 812"));
  EXPECT_THAT(with({.state = 'D', .waits_in = "nfs_wait"}),
              HasSubstr("; it waits for a disk or a network file system in nfs_wait"));
}

// Ranks 0 and 1 wait for each other's group members: 0 for 1 in gather, 1 for 3 in tp, and 3 sleeps.
TEST(Hang, TheOneThatWaitsForNobodyIsNamedHoweverLongTheWayToIt) {
  const std::vector<RankView> ranks = {
      Rank(0).in("gather", {0, 1}).calls("gather", CallState::started).waits(),
      Rank(1).in("gather", {0, 1}).in("tp", {1, 3}).calls("tp", CallState::started, "all_reduce").waits(kStart + 5),
      Rank(3).in("tp", {1, 3}).does("Forward(block 2)")};
  EXPECT_THAT(sentence(ranks), StartsWith("rank 3 has not joined all_reduce #0 of group tp"));
}

TEST(Hang, OfSeveralCallsUnderWayTheFirstOfItsGroupCounts) {
  std::vector<RankView> ranks = {waiting(0), waiting(1), waiting(2)};
  ranks.push_back(Rank(3).in("gather", kAll).does("Forward(block 1)"));
  for (int i = 0; i < 3; ++i) {
    auto& records = ranks[static_cast<std::size_t>(i)].log.records;
    records[0].state = CallState::started;
    records[0].finished_us = 0;
  }
  EXPECT_THAT(sentence(ranks), StartsWith("rank 3 has not joined all_gather #0 of group gather"));
}

TEST(Hang, ACallThatAMemberHasMadeAndNotDoneIsSaidSo) {
  EXPECT_THAT(
      sentence(
          {waiting(0), waiting(1), waiting(2),
           Rank(3).in("gather", kAll).calls("gather").calls("gather", CallState::started).does("Forward(block 9)")}),
      StartsWith("rank 3 has called all_gather #1 of group gather"));
}

TEST(Hang, ANameThatTwoGroupsHaveIsNotMixedUp) {
  const std::vector<RankView> ranks = {Rank(0).in("tp", {0, 1}).calls("tp", CallState::started).waits(),
                                       Rank(1).in("tp", {0, 1}).does("Forward(block 4)"),
                                       Rank(2).in("tp", {2, 3}).does("Forward(block 5)"), Rank(3).in("tp", {2, 3})};
  EXPECT_THAT(sentence(ranks), StartsWith("rank 1 has not joined"));
}

TEST(Hang, AMessageThatIsNotSentNamesTheSender) {
  const std::vector<RankView> ranks = {
      Rank(0).in("activations", {0, 2}).does("Forward(block 1)"),
      Rank(2).in("activations", {0, 2}).calls("activations", CallState::started, "receive", 0).waits()};
  EXPECT_THAT(sentence(ranks),
              StartsWith("rank 0 has not sent what rank 2 waits for in receive #0 of group activations"));
}

TEST(Hang, RanksThatAllWaitInOneCallHaveLostTheirConnection) {
  std::vector<RankView> ranks = {waiting(0), waiting(1), waiting(2), waiting(3)};
  EXPECT_THAT(sentence(ranks), StartsWith("ranks 0-3 have all joined all_gather #1 of group gather"));
  ranks[3].log.header.host = "b boot";
  EXPECT_THAT(sentence(ranks), StartsWith("ranks 0, 1, 2 on a and rank 3 on b have all joined"));
}

TEST(Hang, RanksThatWaitForEachOtherInDifferentCallsAreADeadlock) {
  const auto in_both = [](int rank) { return Rank(rank).in("loss", {0, 1}).in("norm", {0, 1}); };
  EXPECT_THAT(sentence({in_both(0).calls("loss", CallState::started).waits(),
                        in_both(1).calls("norm", CallState::started, "all_reduce").waits()}),
              StartsWith("ranks 0, 1 wait for each other for 1m40s: rank 0 for rank 1 in all_gather #0 of group loss"));
}

TEST(Hang, WhoComesWhenTheOthersHaveGivenUpIsStillTheOneThatWasMissing) {
  const std::int64_t gave_up = kStart + 30 * kSecond;
  const auto other = [&](int rank) { return waiting(rank).gave_up(gave_up); };
  RankView late =
      Rank(3).in("gather", kAll).calls("gather").calls("gather", CallState::failed).waits(gave_up + kSecond);
  late.log.records.back().started_us = gave_up + kSecond;
  const auto verdict = find_hang(std::vector<RankView>{other(0), other(1), other(2), late}, kNow);
  ASSERT_TRUE(verdict);
  EXPECT_THAT(verdict->stuck, ElementsAre(3));
  EXPECT_EQ(verdict->waited_us, 30 * kSecond);
}

TEST(Hang, ARankWithoutARecorderIsNamedFromItsGroup) {
  EXPECT_THAT(sentence({waiting(0), waiting(1), waiting(3)}), HasSubstr("rank 2 has not joined all_gather #1"));
  EXPECT_THAT(sentence({waiting(0), waiting(1), waiting(3)}), HasSubstr("its recorder is not here"));
}

TEST(Hang, WhereNobodyWaitsThereIsNone) {
  EXPECT_EQ(sentence({Rank(0).in("gather", kAll).calls("gather"), Rank(1).in("gather", kAll)}), "");
  EXPECT_EQ(sentence({}), "");
}

// Over gloo and mpi a rank takes part in a call from the moment it has made it, so all have joined.
TEST(Hang, AStoppedRankIsNamedWhereverItStandsBeforeTheConnectionIsBlamed) {
  const ProcessLook stopped{.state = 'T'};
  // In the same call as the others; a step further, so that it waits for them; in a message; with its part done.
  const std::vector<Rank> places = {
      waiting(2).does("", stopped),
      Rank(2)
          .in("gather", kAll)
          .in("loss", kAll)
          .calls("gather")
          .calls("gather", CallState::finished)
          .calls("loss", CallState::started)
          .waits()
          .does("", stopped),
      waiting(2).in("activations", {1, 2}).calls("activations", CallState::started, "receive", 0).does("", stopped),
      Rank(2).in("gather", kAll).calls("gather").calls("gather").does("", stopped)};
  for (const Rank& second : places) {
    const auto verdict = find_hang(std::vector<RankView>{waiting(0), waiting(1), second, waiting(3)}, kNow);
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->stuck, std::vector<int>{2});
    EXPECT_THAT(verdict->sentence, StartsWith("rank 2 has called all_gather #1 of group gather"));
    EXPECT_THAT(verdict->sentence, HasSubstr("it is stopped by a signal (SIGSTOP"));
  }
  EXPECT_THAT(sentence({waiting(0), waiting(1), waiting(2), waiting(3)}),
              HasSubstr("the connection between them is cut"));
}

TEST(Hang, TheHeadlineHasTheVerdictAndTheLogOfTheOneThatIsStuck) {
  HangVerdict verdict{.stuck = {1}, .sentence = "rank 1 has not joined", .details = "  ranks 0, 2 wait for it\n"};
  std::vector<RankOutcome> outcomes(3);
  for (int i = 0; i < 3; ++i) outcomes[static_cast<std::size_t>(i)].global_rank = i;
  outcomes[1].log_path = "out/logs/rank1.log";
  outcomes[1].last_line = "step 812";
  EXPECT_EQ(describe_hang(verdict, outcomes, std::chrono::seconds(41), "step 812"),
            "job failed after 41s at step 812: hang: rank 1 has not joined\n  ranks 0, 2 wait for it\n"
            "  last line: \"step 812\"; log out/logs/rank1.log\n");
}

// A child that sleeps, and then is stopped.
TEST(ProcessLook, SeesWhatAProcessDoes) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0)
    for (;;) sleep(60);
  const ProcessId id{child, base::process_start_ticks(child).value_or(0)};
  EXPECT_TRUE(testing::Job::eventually([&] { return look_at({id})[0].state == 'S'; }));
  EXPECT_THAT(describe(look_at({id})[0]), StartsWith("sleeps"));
  const auto stack = stack_of(child, 16);
  if (!stack.empty()) {
    EXPECT_THAT(describe_stack(stack), HasSubstr("nanosleep"));
  }
  testing::send_signal(child, SIGSTOP);
  EXPECT_TRUE(testing::Job::eventually([&] { return look_at({id})[0].state == 'T'; }));
  EXPECT_EQ(stack_of(child, 16).size(), stack.size());  // also while it is stopped
  EXPECT_EQ(look_at({id})[0].state, 'T');               // and it stays so
  testing::send_signal(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(describe(look_at({id})[0]), "has ended");
  EXPECT_EQ(look_at({{getpid(), id.start_ticks + 1}})[0].state, 0);  // another process under that id
  EXPECT_NE(describe(look_at({{getpid(), 0}})[0]), "has ended");     // its start is unknown
}

}  // namespace
}  // namespace trireme::launch
