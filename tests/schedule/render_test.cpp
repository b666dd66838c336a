#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "trireme/schedule/pipeline.h"
#include "trireme/schedule/placement.h"
#include "trireme/schedule/render_timeline.h"
#include "trireme/schedule/step_declaration.h"

namespace trireme::schedule {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kBoundaryBytes = 1000;

// A pipeline of equal units, `units_per_stage` in each stage; a unit's forward costs 1, its backward 2.
struct Example {
  std::vector<Schedule> lists;
  std::vector<RankProgram> programs;
  Simulation simulation;
  Costs costs;
  Timeline timeline;
};

struct Shape {
  std::string schedule = "1f1b";
  int ranks = 4;
  int micro_batches = 8;
  int units_per_stage = 1;
  bool recompute = false;
  Rates costs = {};
};

Example example(const Shape& shape) {
  const PipelineSchedule& pipeline = pipeline_schedule(shape.schedule);
  const PipelineTiming timing = time_pipeline(pipeline, shape.ranks, pipeline.default_chunks, shape.micro_batches);
  StepDeclaration d;
  d.num_micro_batches = shape.micro_batches;
  d.stages = {.ranks = shape.ranks, .chunks = pipeline.default_chunks, .v_shape = pipeline.v_shape};
  const int num_units = d.stages.num_stages() * shape.units_per_stage;
  for (int u = 0; u < num_units; ++u) {
    UnitDeclaration unit{.name = "unit " + std::to_string(u),
                         .groups = {u},
                         .output_bytes = u + 1 < num_units ? kBoundaryBytes : 0,
                         .saved = {{"x", 64}},
                         .splits_backward = true};
    if (shape.recompute) unit.recomputed = {0};
    d.units.push_back(std::move(unit));
    d.groups.push_back({"unit " + std::to_string(u), 4096, 4096});
  }
  for (int s = 0; s <= d.stages.num_stages(); ++s) d.first_unit.push_back(s * shape.units_per_stage);
  Example e;
  std::vector<int> everyone;
  for (int r = 0; r < shape.ranks; ++r) {
    d.pipeline_rank = r;
    e.lists.push_back(make_list(List::train, d, timing));
    everyone.push_back(r);
  }
  for (const Schedule& list : e.lists)
    e.programs.push_back(
        {.schedule = &list, .members = {{QueueKind::loss, everyone}, {QueueKind::norm, everyone}}, .stages = everyone});
  e.costs = costs_of(e.programs, shape.costs);
  e.simulation = simulate(e.programs, e.costs);
  EXPECT_FALSE(e.simulation.stall.has_value());
  e.timeline = timeline_of(e.programs, e.simulation, e.costs);
  return e;
}

int count(const std::string& text, const std::string& what) {
  int n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

TEST(TimelineText, DrawsOneForwardOneBackwardAsPapersDo) {
  const Example e = example({});
  // 33 times a forward pass in 66 columns. Messages take no time.
  EXPECT_EQ(render_timeline_text(e.timeline, {.width = 84, .unicode = false}),
            "                                                                              idle\n"
            "rank 0 F0F1F2F3............B0--F4B1--F5B2--F6B3--F7B4--..B5--..B6--..B7--   27.3 %\n"
            "rank 1 ..F0F1F2........B0--F3B1--F4B2--F5B3--F6B4--F7B5--..B6--..B7--....   27.3 %\n"
            "rank 2 ....F0F1....B0--F2B1--F3B2--F4B3--F5B4--F6B5--F7B6--..B7--........   27.3 %\n"
            "rank 3 ......F0B0--F1B1--F2B2--F3B3--F4B4--F5B5--F6B6--F7B7--............   27.3 %\n"
            "norm                                                         |----------|\n"
            "s      |0                  |10                 |20                 |30\n"
            "       F forward   B backward   . idle   norm: from the first rank there to the last\n");
}

TEST(TimelineText, UsesCharactersThatTheTerminalHas) {
  const Example e = example({});
  const std::string ascii = render_timeline_text(e.timeline, {.unicode = false});
  EXPECT_TRUE(std::ranges::all_of(ascii, [](char c) { return static_cast<unsigned char>(c) < 128; }));
  EXPECT_THAT(render_timeline_text(e.timeline), HasSubstr("B0──"));
}

TEST(TimelineText, CommunicationHasALineOfItsOwnForAFewRanks) {
  const Example e = example({.ranks = 2, .micro_batches = 2, .costs = {.seconds_per_byte = 1e-3}});
  const std::string two_lines = render_timeline_text(e.timeline, {.unicode = false});
  EXPECT_THAT(two_lines, HasSubstr("> send   < receive"));
  EXPECT_THAT(render_timeline_text(e.timeline, {.unicode = false, .communication_rows = 1}), Not(HasSubstr("> send")));
}

TEST(TimelineText, NoLineIsWiderThanAsked) {
  for (const int width : {60, 84, 200}) {
    const Example e = example({.schedule = "zb_v", .costs = {.seconds_per_byte = 1e-4}});
    std::istringstream lines(render_timeline_text(e.timeline, {.width = width, .unicode = false}));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(static_cast<int>(line.size()), width) << line;
  }
}

TEST(TimelineText, SecondStagesOfARankHaveSmallLetters) {
  const std::string text = render_timeline_text(example({.schedule = "zb_v"}).timeline, {.width = 200});
  EXPECT_THAT(text, HasSubstr("F0"));
  EXPECT_THAT(text, HasSubstr("f0"));
  EXPECT_THAT(text, HasSubstr("w7"));
}

TEST(TimelineText, ManyMicroBatchesShowWhatTakesMostOfAColumn) {
  const Example e = example({.ranks = 2, .micro_batches = 200});
  std::istringstream lines(render_timeline_text(e.timeline, {.width = 80, .unicode = false}));
  std::string line;
  std::getline(lines, line), std::getline(lines, line);
  EXPECT_EQ(std::ranges::count(line, 'F'), 0) << "backward takes twice as long everywhere";
  EXPECT_GT(std::ranges::count(line, 'B'), 45);
}

TEST(TimelineText, RecomputationStandsInFrontOfItsCell) {
  const Example e = example({.ranks = 2, .micro_batches = 1, .units_per_stage = 2, .recompute = true});
  // Unit by unit it runs R B R B; 16 times a forward pass in 80 columns.
  EXPECT_THAT(render_timeline_text(e.timeline, {.width = 96, .unicode = false}),
              HasSubstr("rank 1 ..........F0--------R0--------B0------------------...."));
}

// One element of well-formed XML after the other; returns their names. Fails at the first that is not closed.
std::vector<std::string> elements_of(const std::string& xml) {
  std::vector<std::string> open, all;
  for (size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at + 1)) {
    const size_t end = xml.find('>', at);
    if (end == std::string::npos) {
      ADD_FAILURE() << "unfinished: " << xml.substr(at, 40);
      return all;
    }
    const std::string tag = xml.substr(at + 1, end - at - 1);
    EXPECT_EQ(tag.find('<'), std::string::npos) << tag;
    EXPECT_EQ(std::ranges::count(tag, '"') % 2, 0) << tag;
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1)) {
        ADD_FAILURE() << "closes what is not open: " << tag;
        return all;
      }
      open.pop_back();
      continue;
    }
    all.push_back(tag.substr(0, tag.find_first_of(" /")));
    if (tag.back() != '/') open.push_back(all.back());
  }
  EXPECT_THAT(open, testing::IsEmpty());
  return all;
}

TEST(TimelineSvg, HasABlockForEachCellOfEachRank) {
  for (const int units : {1, 3}) {
    Example e = example({.units_per_stage = units});
    e.timeline.title = "a < b & \"c\"";
    const std::string svg = render_timeline_svg(e.timeline);
    EXPECT_THAT(elements_of(svg), testing::Contains("rect"));
    EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; &quot;c&quot;"));
    const int legend = 1;  // of each kind
    EXPECT_EQ(count(svg, "<rect class=\"forward"), 4 * 8 + legend);
    EXPECT_EQ(count(svg, "<rect class=\"backward"), 4 * 8 + legend);
    EXPECT_EQ(count(svg, "<rect class=\"send"), 0) << "messages that take no time are no blocks";
    EXPECT_THAT(svg, HasSubstr(">B7</text>"));
    for (int u = 0; u < 4 * units; ++u) EXPECT_THAT(svg, HasSubstr("Backward(unit " + std::to_string(u) + ", mb 7)"));
  }
}

TEST(TimelineSvg, DrawsEveryMessageOnceAtEachEnd) {
  const Example e = example({.ranks = 2, .micro_batches = 4, .costs = {.seconds_per_byte = 5e-4}});
  const std::string svg = render_timeline_svg(e.timeline);
  EXPECT_EQ(count(svg, "<rect class=\"send"), 2 * 4 + 1);
  EXPECT_EQ(count(svg, "<rect class=\"receive"), 2 * 4 + 1);
  EXPECT_THAT(svg, HasSubstr("Send(unit 0, mb 0) 0.5 s to rank 1, 1000 B"));
}

TEST(TimelineTrace, HasEveryActionOnceAndPairsItsArrows) {
  const Example e = example({.schedule = "zb_v", .costs = {.seconds_per_byte = 1e-5}});
  const auto trace = nlohmann::json::parse(render_timeline_trace(e.timeline));
  std::set<std::pair<int, int>> seen;  // rank, action
  std::map<int, std::string> arrows;
  std::map<std::pair<int, int>, double> thread_end;
  size_t actions = 0, messages = 0;
  for (const Schedule& s : e.lists) actions += s.actions.size();
  for (const auto& event : trace["traceEvents"]) {
    const auto phase = event["ph"].get<std::string>();
    if (phase == "X") {
      EXPECT_TRUE(seen.emplace(event["pid"].get<int>(), event["args"]["action"].get<int>()).second) << event;
      EXPECT_GE(event["dur"].get<double>(), 0);
      messages += event["cat"] == "Send" ? 1 : 0;
      // Slices of a thread do not overlap, or a viewer would stack them.
      double& end = thread_end[{event["pid"].get<int>(), event["tid"].get<int>()}];
      EXPECT_GE(event["ts"].get<double>(), end - 1e-3) << event;
      end = event["ts"].get<double>() + event["dur"].get<double>();
    } else if (phase == "s" || phase == "f") {
      arrows[event["id"].get<int>()] += phase;
    }
  }
  EXPECT_EQ(seen.size(), actions);
  EXPECT_GT(messages, 0u);
  EXPECT_EQ(arrows.size(), messages);
  for (const auto& [id, ends] : arrows) EXPECT_TRUE(ends == "sf" || ends == "fs") << id << " has " << ends;
}

TEST(TimelineTrace, LeavesOutArrowsToRanksThatAreNotShown) {
  const Example e = example({});
  const std::vector<int> first = {0};
  const Timeline one = timeline_of(e.programs, e.simulation, e.costs, first);
  EXPECT_EQ(one.rows.size(), 1u);
  EXPECT_THAT(render_timeline_trace(one), Not(HasSubstr("\"ph\":\"s\"")));
}

TEST(Timeline, AMeasuredStepHasTheRowsOfThePredictedOne) {
  const Example e = example({.costs = {.seconds_per_byte = 1e-5}});
  Timeline measured;
  for (size_t r = 0; r < e.lists.size(); ++r) {
    std::vector<Measured> times;
    for (size_t i = 0; i < e.lists[r].actions.size(); ++i)
      times.push_back({static_cast<int>(i), e.simulation.spans[r][i].begin, e.simulation.spans[r][i].end});
    std::reverse(times.begin(), times.end());  // asynchronous actions are recorded when they end
    Timeline row = timeline_of_measured(e.lists[r], times, static_cast<int>(r));
    measured.rows.push_back(std::move(row.rows.at(0)));
  }
  EXPECT_EQ(render_timeline_text(measured, {.communication_rows = 0}),
            render_timeline_text(e.timeline, {.communication_rows = 0}));
  EXPECT_EQ(count(render_timeline_trace(measured), "\"ph\":\"f\""),
            count(render_timeline_trace(e.timeline), "\"ph\":\"f\""));
}

TEST(Timeline, AQueueOfAMeasuredStepDoesOneThingAfterTheOther) {
  const Example e = example({.ranks = 2, .micro_batches = 3});
  std::vector<Measured> times;
  for (size_t i = 0; i < e.lists[0].actions.size(); ++i)
    if (e.lists[0].actions[i].kind == ActionKind::send) times.push_back({static_cast<int>(i), 0.0, 1.0 + times.size()});
  const Timeline timeline = timeline_of_measured(e.lists[0], times, 0);
  ASSERT_EQ(timeline.rows[0].spans.size(), 3u);
  EXPECT_EQ(timeline.rows[0].spans[2].posted, 0);
  EXPECT_EQ(timeline.rows[0].spans[2].begin, 2);
}

TEST(IdleReport, TellsARanksOwnSpanFromTheStep) {
  const Example e = example({});
  const IdleReport report = idle_report(e.timeline);
  EXPECT_DOUBLE_EQ(report.length, 33);
  EXPECT_DOUBLE_EQ(report.fraction, 3.0 / 11);  // (p - 1) / (m + p - 1)
  ASSERT_EQ(report.ranks.size(), 4u);
  EXPECT_DOUBLE_EQ(report.ranks[3].begin, 3);
  EXPECT_DOUBLE_EQ(report.ranks[3].end, 27);
  EXPECT_DOUBLE_EQ(report.ranks[3].idle(), 0) << "the last rank works without a pause";
  EXPECT_DOUBLE_EQ(report.ranks[3].fraction_of_step, 9.0 / 33);
  EXPECT_DOUBLE_EQ(report.ranks[0].fraction, 9.0 / 33);
}

TEST(IdleReport, AZeroBubbleScheduleIdlesOnlyOutsideItsSpans) {
  const Example e = example({.schedule = "zb_v"});
  for (const IdleReport::Rank& r : idle_report(e.timeline).ranks) EXPECT_NEAR(r.fraction, 0, 1e-12) << r.rank;
}

TEST(IdleReport, TheFormulasAreWhatTheSchedulesDo) {
  for (const PipelineSchedule& schedule : pipeline_schedules())
    for (const int p : {2, 4, 8})
      for (const int m : {p, 2 * p, 4 * p}) {
        const int v = schedule.default_chunks;
        const auto formula = idle_formula(std::string(schedule.name), p, v, m);
        if (!formula) continue;
        EXPECT_NEAR(*formula, time_pipeline(schedule, p, v, m).idle_fraction(), 1e-12)
            << schedule.name << " p=" << p << " m=" << m;
      }
  EXPECT_TRUE(idle_formula("zb_v", 4, 2, 8).has_value());
  EXPECT_FALSE(idle_formula("no such schedule", 4, 1, 8).has_value());
}

TEST(NormBarrier, LastsFromTheFirstRankThereToTheLast) {
  const auto barrier = norm_barrier(example({}).timeline);
  ASSERT_TRUE(barrier.has_value());
  EXPECT_DOUBLE_EQ(barrier->first, 27);
  EXPECT_EQ(barrier->first_rank, 3);
  EXPECT_DOUBLE_EQ(barrier->end, 33);
  EXPECT_EQ(barrier->last_rank, 0);
}

// Below a second, and 1.4 times what making the lists takes; in these terms a slow machine changes nothing.
TEST(Timeline, DrawingSixtyFourRanksTakesAtMostThreeTimesTheirLists) {
  const auto start = std::clock();
  const Example e =
      example({.ranks = 64, .micro_batches = 128, .units_per_stage = 2, .costs = {.seconds_per_byte = 1e-5}});
  const auto built = std::clock();
  EXPECT_EQ(count(render_timeline_text(e.timeline), "\nrank "), 64);
  const std::string svg = render_timeline_svg(e.timeline);
  EXPECT_EQ(count(svg, "<rect class=\"forward"), 64 * 128 + 1);
  EXPECT_LT(svg.size(), 5'000'000u);
  EXPECT_THAT(render_timeline_trace(e.timeline), HasSubstr("rank 63"));
  const auto end = std::clock();
  const auto seconds = [](std::clock_t ticks) { return double(ticks) / CLOCKS_PER_SEC; };
  RecordProperty("lists_seconds", std::to_string(seconds(built - start)));
  RecordProperty("pictures_seconds", std::to_string(seconds(end - built)));
  EXPECT_LT(seconds(end - built), 3 * seconds(built - start));
}

TEST(RenderText, NamesEachMessagesPeer) {
  Example e = example({.ranks = 2, .micro_batches = 1});
  place({e.lists.data(), 1});
  const std::string list = render_text(e.lists[0]);
  EXPECT_THAT(list, HasSubstr("send>1"));
  EXPECT_THAT(list, HasSubstr("receive<1  Receive(gradient unit 0, mb 0)"));
}

}  // namespace
}  // namespace trireme::schedule
