#include "trireme/schedule/render_timeline.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

namespace trireme::schedule {
namespace {

// The chunk (which of the rank's stages) of each unit: units in one cell are of one stage, and chunks are numbered by
// their first unit.
std::map<int, int> chunks_of_units(const Schedule& s) {
  std::map<int, int> first_of;  // unit -> first unit known to be of its stage
  std::map<int, std::vector<int>> cells;
  for (const Action& a : s.actions)
    if (is_computation(a.kind)) cells[a.cell].push_back(a.owner);
  for (const auto& [cell, units] : cells) {
    const auto [low, high] = std::minmax_element(units.begin(), units.end());
    for (int u = *low; u <= *high; ++u) {
      const auto it = first_of.try_emplace(u, *low).first;
      it->second = std::min(it->second, *low);
    }
  }
  std::map<int, int> chunk_of_first, chunks;
  for (auto& [unit, first] : first_of) {
    first = first_of.at(first);  // the first unit's own entry is settled: units come in ascending order
    chunk_of_first.try_emplace(first, static_cast<int>(chunk_of_first.size()));
  }
  for (const auto& [unit, first] : first_of) chunks[unit] = chunk_of_first.at(first);
  return chunks;
}

// The rank's actions without their times.
std::vector<TimelineSpan> spans_of(const Schedule& s, std::span<const int> stages) {
  const std::map<int, int> chunks = chunks_of_units(s);
  std::vector<TimelineSpan> spans;
  for (size_t i = 0; i < s.actions.size(); ++i) {
    const Action& a = s.actions[i];
    TimelineSpan span{.kind = a.kind,
                      .queue = a.queue,
                      .action = static_cast<int>(i),
                      .owner = a.owner,
                      .micro_batch = a.micro_batch,
                      .cell = a.cell,
                      .bytes = a.bytes,
                      .label = describe(s, a)};
    if (is_computation(a.kind)) span.chunk = chunks.at(a.owner);
    const int peer = a.queue.peer;
    if (is_message(a.kind)) span.peer_rank = peer >= 0 && peer < static_cast<int>(stages.size()) ? stages[peer] : peer;
    spans.push_back(std::move(span));
  }
  return spans;
}

}  // namespace

double Timeline::length() const {
  double last = 0;
  for (const Row& row : rows)
    for (const TimelineSpan& s : row.spans) last = std::max(last, s.end);
  return last;
}

Timeline timeline_of(const std::vector<RankProgram>& programs, const Simulation& simulation, const Costs& costs,
                     std::span<const int> ranks) {
  std::vector<int> all(programs.size());
  std::iota(all.begin(), all.end(), 0);
  if (ranks.empty()) ranks = all;
  Timeline timeline;
  for (int r : ranks) {
    Row row{.rank = r, .spans = spans_of(*programs[r].schedule, programs[r].stages)};
    const auto known = costs.find(programs[r].schedule);
    for (size_t i = 0; i < row.spans.size(); ++i) {
      TimelineSpan& span = row.spans[i];
      const Span& times = simulation.spans[r][i];
      span.posted = span.begin = times.begin;
      span.end = times.end;
      if (span.queue.kind == QueueKind::compute) continue;
      // The model only knows when it was posted. It ran for as long as it costs; without partners it took no time.
      const double cost = known == costs.end() ? 0 : known->second[i].transfer;
      span.begin = std::max(times.begin, times.end - cost);
    }
    timeline.rows.push_back(std::move(row));
  }
  return timeline;
}

Timeline timeline_of_measured(const Schedule& schedule, std::span<const Measured> measured, int rank,
                              std::span<const int> stages) {
  const std::vector<TimelineSpan> known = spans_of(schedule, stages);
  std::vector<Measured> ordered(measured.begin(), measured.end());
  std::sort(ordered.begin(), ordered.end(), [](const Measured& a, const Measured& b) { return a.action < b.action; });
  Row row{.rank = rank};
  std::map<Queue, double> free_at;
  for (const Measured& m : ordered) {
    TimelineSpan span = known.at(m.action);
    span.posted = m.begin;
    span.end = m.end;
    // A queue runs one action after the other: one that was posted early began when the one before it ended.
    double& free = free_at.try_emplace(span.queue, m.begin).first->second;
    span.begin = std::min(std::max(m.begin, free), m.end);
    free = std::max(free, m.end);
    row.spans.push_back(std::move(span));
  }
  Timeline timeline;
  timeline.rows.push_back(std::move(row));
  return timeline;
}

IdleReport idle_report(const Timeline& timeline) {
  IdleReport report{.length = timeline.length()};
  double busy = 0;
  for (const Row& row : timeline.rows) {
    IdleReport::Rank r{.rank = row.rank, .begin = std::numeric_limits<double>::infinity()};
    for (const TimelineSpan& s : row.spans) {
      if (s.queue.kind != QueueKind::compute || s.seconds() <= 0) continue;
      r.begin = std::min(r.begin, s.begin);
      r.end = std::max(r.end, s.end);
      r.busy += s.seconds();
    }
    r.begin = std::min(r.begin, r.end);  // a rank that computes nothing
    r.fraction = r.end > r.begin ? r.idle() / (r.end - r.begin) : 0;
    r.fraction_of_step = report.length > 0 ? 1 - r.busy / report.length : 0;
    busy += r.busy;
    report.ranks.push_back(r);
  }
  const double whole = report.length * double(timeline.rows.size());
  report.fraction = whole > 0 ? 1 - busy / whole : 0;
  return report;
}

std::optional<double> idle_formula(const std::string& schedule, int ranks, int chunks, int micro_batches) {
  const double bubble = ranks - 1, p = ranks, v = chunks, m = micro_batches;
  const auto of = [&](double work) { return bubble / (work + bubble); };
  if (schedule == "gpipe" || schedule == "1f1b") return of(m);
  if (m < p) return std::nullopt;
  if (schedule == "interleaved_1f1b" || schedule == "breadth_first") return of(v * m);
  if (schedule == "zb_h1") return of(3 * m);
  if (schedule == "zb_v" && m >= 2 * p - 1) return of(6 * m);
  return std::nullopt;
}

std::optional<Barrier> norm_barrier(const Timeline& timeline) {
  Barrier b{.first = std::numeric_limits<double>::infinity()};
  bool has_norm = false;
  for (const Row& row : timeline.rows) {
    double posted = std::numeric_limits<double>::infinity();
    for (const TimelineSpan& s : row.spans) {
      if (s.kind != ActionKind::gather_loss && s.kind != ActionKind::gather_norm) continue;
      has_norm = has_norm || s.kind == ActionKind::gather_norm;
      posted = std::min(posted, s.posted);
      b.end = std::max(b.end, s.end);
    }
    if (posted == std::numeric_limits<double>::infinity()) continue;
    if (posted < b.first) b.first = posted, b.first_rank = row.rank;
    if (posted >= b.last) b.last = posted, b.last_rank = row.rank;
  }
  if (!has_norm || timeline.rows.size() < 2 || b.end <= b.first) return std::nullopt;
  return b;
}

}  // namespace trireme::schedule
