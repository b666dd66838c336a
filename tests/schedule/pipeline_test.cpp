// Pipeline schedules against the formulas of the papers, at F = I = W: as cells, and again as the full lists of all
// ranks run on the queue model, which adds the messages and what they complete before.
#include "trireme/schedule/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "trireme/base/error.h"
#include "trireme/schedule/placement.h"
#include "trireme/schedule/queue_model.h"
#include "trireme/schedule/step_declaration.h"

namespace trireme::schedule {
namespace {

struct Shape {
  std::string schedule;
  int ranks, chunks, micro_batches;
  std::string text() const {
    return schedule + " over " + std::to_string(ranks) + " x " + std::to_string(chunks) + ", " +
           std::to_string(micro_batches) + " micro-batches";
  }
};

// Idle time over all ranks as a fraction of ranks x length.
double formula(const Shape& s) {
  const double p = s.ranks, m = s.micro_batches, v = s.chunks;
  if (s.schedule == "zb_h1") return (p - 1) / (3 * m + p - 1);
  if (s.schedule == "zb_v") return (p - 1) / (6 * m + p - 1);
  return (p - 1) / (v * m + p - 1);
}

// Shapes for which the formulas hold.
std::vector<Shape> shapes(const std::vector<int>& all_ranks = {2, 3, 4, 8}) {
  std::vector<Shape> all;
  for (int p : all_ranks) {
    for (int m : {1, 2, p - 1, p, p + 1, 2 * p, 3 * p + 1}) {
      all.push_back({"gpipe", p, 1, m});
      all.push_back({"1f1b", p, 1, m});
      if (m >= p) all.push_back({"zb_h1", p, 1, m});
      if (m >= p) all.push_back({"breadth_first", p, 2, m});
      if (m >= p) all.push_back({"breadth_first", p, 3, m});
    }
    for (int m : {p, 2 * p, 4 * p})
      for (int v : {2, 3}) all.push_back({"interleaved_1f1b", p, v, m});
    for (int m : {2 * p - 1, 2 * p, 3 * p + 1}) all.push_back({"zb_v", p, 2, m});
  }
  return all;
}

PipelineTiming time(const Shape& s) {
  return time_pipeline(pipeline_schedule(s.schedule), s.ranks, s.chunks, s.micro_batches);
}

// Stages of `units` equal units; every unit can halve its backward.
StepDeclaration uniform_step(const Shape& s, int units) {
  StepDeclaration d;
  d.num_micro_batches = s.micro_batches;
  d.input_bytes = d.target_bytes = 64;
  d.stages = {.ranks = s.ranks, .chunks = s.chunks, .v_shape = pipeline_schedule(s.schedule).v_shape};
  const int stages = d.stages.num_stages();
  for (int stage = 0; stage <= stages; ++stage) d.first_unit.push_back(stage * units);
  for (int u = 0; u < stages * units; ++u) {
    const std::string name = "unit " + std::to_string(u);
    d.groups.push_back({name, 4096, 4096});
    UnitDeclaration unit{.name = name,
                         .groups = {u},
                         .output_bytes = u + 1 < stages * units ? 256 : 0,
                         .saved = {{"for input", 64}, {"for weight", 64}},
                         .deferred = {{"dy", 64}},
                         .saved_for_weight = {1}};
    unit.splits_backward = true;
    d.units.push_back(std::move(unit));
  }
  return d;
}

struct Lists {
  std::vector<Schedule> lists;
  std::vector<RankProgram> programs;
};

Lists lists_of(const Shape& s, int units) {
  Lists out;
  const PipelineTiming timing = time(s);
  StepDeclaration d = uniform_step(s, units);
  std::vector<int> all;
  for (int r = 0; r < s.ranks; ++r) {
    d.pipeline_rank = r;
    out.lists.push_back(make_list(List::train, d, timing));
    all.push_back(r);
  }
  for (const Schedule& list : out.lists)
    out.programs.push_back(
        {.schedule = &list, .members = {{QueueKind::loss, all}, {QueueKind::norm, all}}, .stages = all});
  return out;
}

double idle_fraction(const Lists& l, const Simulation& run) {
  double first = std::numeric_limits<double>::max(), last = 0, busy = 0;
  for (size_t r = 0; r < l.lists.size(); ++r) {
    busy += run.computing(l.programs[r], static_cast<int>(r));
    for (size_t i = 0; i < l.lists[r].actions.size(); ++i) {
      if (!is_computation(l.lists[r].actions[i].kind)) continue;
      first = std::min(first, run.spans[r][i].begin);
      last = std::max(last, run.spans[r][i].end);
    }
  }
  return 1 - busy / (double(l.lists.size()) * (last - first));
}

TEST(Pipeline, CellsIdleAsTheFormulasSay) {
  for (const Shape& s : shapes()) EXPECT_NEAR(time(s).idle_fraction(), formula(s), 1e-12) << s.text();
}

TEST(Pipeline, ZbVNeverIdlesInsideARanksOwnSpan) {
  for (const Shape& s : shapes()) {
    if (s.schedule != "zb_v") continue;
    const PipelineTiming t = time(s);
    for (int r = 0; r < s.ranks; ++r)
      EXPECT_DOUBLE_EQ(t.end[r].back() - t.start[r].front(), t.busy(r)) << s.text() << ", rank " << r;
  }
}

TEST(Pipeline, MessagesAddNoWait) {
  for (const Shape& s : shapes({2, 3, 4}))
    for (int units : {1, 2}) {
      const Lists l = lists_of(s, units);
      const Simulation run = simulate(l.programs, Rates{});
      ASSERT_FALSE(run.stall.has_value()) << s.text() << ": " << run.stall->lines[0];
      EXPECT_NEAR(idle_fraction(l, run), formula(s), 1e-12) << s.text() << ", " << units << " units a stage";
    }
}

// What the test above would see if messages were waited for.
TEST(Pipeline, SlowMessagesAddIdleTime) {
  const Shape s{"1f1b", 4, 1, 8};
  const Lists l = lists_of(s, 1);
  EXPECT_GT(idle_fraction(l, simulate(l.programs, Rates{.latency = 2})), formula(s) + 0.01);
}

// The largest number of micro-batches, over all of a rank's chunks, whose tensor `index` of `saved` is alive at once.
int held(const Schedule& s, int index) {
  std::map<int, std::map<int, int>> alive;  // unit -> action -> change
  for (const Value& v : s.values)
    if (v.kind == ValueKind::saved && tensor_index(v.instance) == index)
      ++alive[v.owner][v.first], --alive[v.owner][v.last + 1];
  std::map<int, int> sum;
  for (const auto& [unit, changes] : alive)
    for (const auto& [at, change] : changes) sum[at] += change;
  int now = 0, most = 0;
  for (const auto& [at, change] : sum) most = std::max(most, now += change);
  return most;
}

TEST(Pipeline, RanksHoldTheActivationsThatThePapersSay) {
  for (const Shape& s : shapes({2, 3, 4})) {
    Lists l = lists_of(s, 1);
    for (Schedule& list : l.lists) place({&list, 1});  // counts lives
    const int p = s.ranks, m = s.micro_batches, v = s.chunks;
    for (int r = 0; r < p; ++r) {
      const int for_input = held(l.lists[r], 0), for_weight = held(l.lists[r], 1);
      SCOPED_TRACE(s.text() + ", rank " + std::to_string(r));
      if (s.schedule == "gpipe" || s.schedule == "breadth_first") {
        EXPECT_EQ(for_input, v * m);
      } else if (s.schedule == "1f1b") {
        EXPECT_EQ(for_input, std::min(p - r, m));
      } else if (s.schedule == "interleaved_1f1b") {
        EXPECT_EQ(for_input, std::min((v - 1) * p + 2 * (p - 1 - r) + 1, v * m));
      } else if (s.schedule == "zb_h1") {
        EXPECT_EQ(for_input, std::min(p - r, m));
        EXPECT_EQ(for_weight, std::min(p, m));  // weight halves that are kept back need them
      } else {
        EXPECT_LE(for_weight, 2 * p);  // half as large as those of a schedule with one stage a rank
        EXPECT_EQ(for_input, 2 * p);
      }
    }
  }
}

TEST(Pipeline, EveryBoundaryBetweenRanksIsSentOnceEachWay) {
  for (const Shape& s : shapes({2, 3, 4})) {
    const Lists l = lists_of(s, 2);
    std::map<std::pair<int, ActionKind>, int> count;  // (lane, send or receive)
    int64_t bytes = 0;
    for (const Schedule& list : l.lists)
      for (const Action& a : list.actions)
        if (a.kind == ActionKind::send || a.kind == ActionKind::receive)
          ++count[{a.queue.lane, a.kind}], bytes += a.kind == ActionKind::send ? a.bytes : 0;
    // In a V the middle boundary lies inside the last rank.
    const int boundaries = s.ranks * s.chunks - 1 - (s.schedule == "zb_v");
    for (int lane : {0, 1})
      for (ActionKind kind : {ActionKind::send, ActionKind::receive})
        EXPECT_EQ((count[{lane, kind}]), boundaries * s.micro_batches) << s.text();
    EXPECT_EQ(bytes, int64_t{256} * 2 * boundaries * s.micro_batches) << s.text();
  }
}

TEST(Pipeline, EveryCellIsThereOnce) {
  for (const Shape& s : shapes()) {
    const bool halves = s.schedule == "zb_h1" || s.schedule == "zb_v";
    const PipelineTiming t = time(s);
    for (int r = 0; r < s.ranks; ++r)
      for (int c = 0; c < s.chunks; ++c)
        for (int m = 0; m < s.micro_batches; ++m) {
          const auto times = [&](Cell::Kind kind) {
            return std::count(t.cells[r].begin(), t.cells[r].end(), Cell{kind, c, m});
          };
          EXPECT_EQ(times(Cell::Kind::forward), 1) << s.text();
          EXPECT_EQ(times(Cell::Kind::backward), halves ? 0 : 1) << s.text();
          EXPECT_EQ(times(Cell::Kind::input), halves ? 1 : 0) << s.text();
          EXPECT_EQ(times(Cell::Kind::weight), halves ? 1 : 0) << s.text();
        }
  }
}

TEST(Pipeline, FewerMicroBatchesThanTheFormulasWantStillRun) {
  for (const PipelineSchedule& schedule : pipeline_schedules())
    for (int p : {2, 3, 4})
      for (int m = 1; m < 2 * p; ++m) {
        const Shape s{std::string(schedule.name), p, schedule.default_chunks, m};
        if (check_rounds(schedule, {.ranks = p, .micro_batches = m})) {
          EXPECT_THROW(time(s), UsageError) << s.text();
          continue;
        }
        const Lists l = lists_of(s, 1);
        EXPECT_FALSE(run_queue_model(l.programs).has_value()) << s.text();
      }
}

TEST(Pipeline, StagesAreBalancedByCost) {
  EXPECT_EQ(balance_stages(std::vector<double>{1, 1, 1, 1}, 2), (std::vector<int>{0, 2, 4}));
  EXPECT_EQ(balance_stages(std::vector<double>{1, 1, 1, 3}, 2), (std::vector<int>{0, 3, 4}));
  EXPECT_EQ(balance_stages(std::vector<double>{5, 1, 1, 1}, 3).size(), 4u);
  EXPECT_THROW(balance_stages(std::vector<double>{1, 1}, 3), UsageError);
}

TEST(Pipeline, AnUnknownScheduleIsRefusedWithTheNamesThereAre) {
  try {
    pipeline_schedule("1f2b");
    FAIL() << "there is no such schedule";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("1f1b"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("zb_v"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace trireme::schedule
