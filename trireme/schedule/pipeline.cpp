#include "trireme/schedule/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/schedule/pipelines/pipelines.h"

namespace trireme::schedule {
namespace {

struct CellTimes {
  // (stage, micro-batch) -> end of its forward, of the half of backward that other stages wait for
  std::map<std::pair<int, int>, double> forward, backward;
};

double cost_of(Cell::Kind kind) { return kind == Cell::Kind::backward ? 2 : 1; }

// When the cells that this one needs have ended; negative: one of them has not run yet.
double ready(const CellTimes& done, const Cell& cell, int stage, int num_stages) {
  const auto at = [&](const auto& table, int s) {
    const auto it = table.find({s, cell.micro_batch});
    return it == table.end() ? -1.0 : it->second;
  };
  switch (cell.kind) {
    case Cell::Kind::forward:
      return stage == 0 ? 0 : at(done.forward, stage - 1);
    case Cell::Kind::weight:
      return at(done.backward, stage);
    default: {
      const double own = at(done.forward, stage);
      const double after = stage + 1 == num_stages ? 0 : at(done.backward, stage + 1);
      return own < 0 || after < 0 ? -1 : std::max(own, after);
    }
  }
}

PipelineTiming run(std::vector<std::vector<Cell>> cells, const StageMap& map, std::string_view name) {
  PipelineTiming t{.cells = std::move(cells), .start = {}, .end = {}};
  t.start.resize(map.ranks);
  t.end.resize(map.ranks);
  CellTimes done;
  bool moved = true;
  while (moved) {
    moved = false;
    for (int r = 0; r < map.ranks; ++r) {
      while (t.start[r].size() < t.cells[r].size()) {
        const Cell& cell = t.cells[r][t.start[r].size()];
        const int stage = map.stage(r, cell.chunk);
        const double at = ready(done, cell, stage, map.num_stages());
        if (at < 0) break;
        const double begin = std::max(at, t.end[r].empty() ? 0.0 : t.end[r].back());
        const double end = begin + cost_of(cell.kind);
        t.start[r].push_back(begin);
        t.end[r].push_back(end);
        if (cell.kind == Cell::Kind::forward) done.forward[{stage, cell.micro_batch}] = end;
        if (cell.kind == Cell::Kind::backward || cell.kind == Cell::Kind::input)
          done.backward[{stage, cell.micro_batch}] = end;
        moved = true;
      }
    }
  }
  for (int r = 0; r < map.ranks; ++r)
    if (t.start[r].size() < t.cells[r].size())
      throw InternalError(fmt::format("pipeline schedule {}: rank {} of {} waits for ever at cell {}", name, r,
                                      map.ranks, t.start[r].size()));
  return t;
}

StageMap map_of(const PipelineSchedule& s, int ranks, int chunks) {
  return {.ranks = ranks, .chunks = chunks, .v_shape = s.v_shape};
}

}  // namespace

std::span<const PipelineSchedule> pipeline_schedules() {
  static const PipelineSchedule kTable[] = {
      pipelines::gpipe(),         pipelines::one_f_one_b(), pipelines::interleaved_1f1b(),
      pipelines::breadth_first(), pipelines::zb_h1(),       pipelines::zb_v()};
  return kTable;
}

const PipelineSchedule* find_pipeline_schedule(std::string_view name) {
  const auto all = pipeline_schedules();
  const auto at = std::find_if(all.begin(), all.end(), [&](const PipelineSchedule& s) { return s.name == name; });
  return at == all.end() ? nullptr : &*at;
}

const PipelineSchedule& pipeline_schedule(std::string_view name) {
  if (const PipelineSchedule* schedule = find_pipeline_schedule(name)) return *schedule;
  std::string names;
  for (const PipelineSchedule& s : pipeline_schedules())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", s.name);
  throw UsageError(fmt::format("there is no pipeline schedule '{}'; pipeline.schedule is one of {}", name, names));
}

std::optional<config::Refusal> check_rounds(const PipelineSchedule& schedule, const PipelineLoad& load) {
  const int64_t round = load.data_ranks * load.ranks;
  if (!schedule.in_rounds || load.micro_batches % round == 0) return std::nullopt;
  return config::Refusal{
      fmt::format("{} runs micro-batches in rounds of mesh.pp {} on each of {}, and the step's {} are not whole rounds",
                  schedule.name, load.ranks, base::plural(load.data_ranks, "data-parallel rank"), load.micro_batches),
      fmt::format("train.global_batch_size {} fits; pipeline.schedule 1f1b and breadth_first take any number",
                  base::near_multiples(load.micro_batches * load.micro_batch_size, round * load.micro_batch_size))};
}

double PipelineTiming::length() const {
  double last = 0;
  for (const auto& ends : end)
    for (double e : ends) last = std::max(last, e);
  return last;
}

double PipelineTiming::busy(int rank) const {
  double sum = 0;
  for (size_t i = 0; i < start[rank].size(); ++i) sum += end[rank][i] - start[rank][i];
  return sum;
}

double PipelineTiming::idle_fraction() const {
  double sum = 0;
  for (size_t r = 0; r < cells.size(); ++r) sum += busy(static_cast<int>(r));
  return 1 - sum / (double(cells.size()) * length());
}

void check_chunks(const PipelineSchedule& s, int chunks) {
  if (s.fixed_chunks && chunks != s.default_chunks)
    throw UsageError(fmt::format("pipeline.schedule {} holds {} stages on each rank, not {}; leave pipeline.chunks out",
                                 s.name, s.default_chunks, chunks));
}

PipelineTiming time_pipeline(const PipelineSchedule& s, int ranks, int chunks, int micro_batches) {
  check_chunks(s, chunks);
  if (const auto why = check_rounds(s, {.ranks = ranks, .micro_batches = micro_batches}))
    throw UsageError(fmt::format("{}; {}", why->headline, why->hint));
  std::vector<std::vector<Cell>> cells;
  for (int r = 0; r < ranks; ++r)
    cells.push_back(s.cells({.ranks = ranks, .rank = r, .chunks = chunks, .micro_batches = micro_batches}));
  return run(std::move(cells), map_of(s, ranks, chunks), s.name);
}

PipelineTiming time_forward_only(const PipelineSchedule& s, int ranks, int chunks, int micro_batches) {
  std::vector<std::vector<Cell>> cells(ranks);
  for (int r = 0; r < ranks; ++r)
    for (int mb = 0; mb < micro_batches; ++mb)
      for (int c = 0; c < chunks; ++c) cells[r].push_back({Cell::Kind::forward, c, mb});
  return run(std::move(cells), map_of(s, ranks, chunks), s.name);
}

std::vector<Message> plan_messages(const PipelineTiming& t, const StageMap& map) {
  // The rank and cell that make, and those that read, each boundary and each gradient.
  std::map<std::tuple<int, int, int>, Message> found;  // (lane, stage that makes it, micro-batch)
  for (int r = 0; r < map.ranks; ++r)
    for (int i = 0; i < static_cast<int>(t.cells[r].size()); ++i) {
      const Cell& cell = t.cells[r][i];
      if (cell.kind == Cell::Kind::weight) continue;
      const int stage = map.stage(r, cell.chunk), lane = cell.kind == Cell::Kind::forward ? 0 : 1;
      const int next = lane == 0 ? stage + 1 : stage - 1, before = lane == 0 ? stage - 1 : stage + 1;
      if (next >= 0 && next < map.num_stages()) {
        Message& m = found[{lane, stage, cell.micro_batch}];
        m.lane = lane, m.stage = stage, m.micro_batch = cell.micro_batch, m.from = r, m.from_cell = i;
      }
      if (before >= 0 && before < map.num_stages()) {
        Message& m = found[{lane, before, cell.micro_batch}];
        m.to = r, m.to_cell = i;
      }
    }
  std::vector<Message> all;
  for (const auto& [key, m] : found)
    if (m.from != m.to) all.push_back(m);
  // In the order of the sends. A receive is posted one cell before its reader, and before messages that are sent later.
  std::sort(all.begin(), all.end(), [](const Message& a, const Message& b) {
    return std::tie(a.from, a.from_cell) < std::tie(b.from, b.from_cell);
  });
  std::map<std::tuple<int, int, int>, int> earliest;  // (from, to, lane) -> post cell of the message sent after
  for (auto m = all.rbegin(); m != all.rend(); ++m) {
    int& limit = earliest.try_emplace({m->from, m->to, m->lane}, std::numeric_limits<int>::max()).first->second;
    m->post_cell = limit = std::min(limit, std::max(0, m->to_cell - 1));
    const double ready = t.start[m->to][m->post_cell];
    const auto count = static_cast<int>(t.cells[m->from].size());
    int gone = m->from_cell + 2;  // the transfer may overlap one cell
    while (gone < count && t.start[m->from][gone] < ready) ++gone;
    m->gone_cell = std::min(gone, count);
  }
  return all;
}

std::vector<int> balance_stages(std::span<const double> costs, int stages) {
  const auto n = static_cast<int>(costs.size());
  if (n < stages)
    throw UsageError(fmt::format(
        "{} pipeline stages for {} units (embedding, blocks and head, or wrapped parts); use fewer ranks along "
        "mesh.pp, fewer pipeline.chunks, or a model of more units",
        stages, n));
  std::vector<double> before(n + 1, 0);
  for (int i = 0; i < n; ++i) before[i + 1] = before[i] + costs[i];
  // best[s][i]: smallest largest sum of the first i units in s stages.
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(stages + 1, std::vector<double>(n + 1, infinity));
  std::vector<std::vector<int>> cut(stages + 1, std::vector<int>(n + 1, 0));
  best[0][0] = 0;
  for (int s = 1; s <= stages; ++s)
    for (int i = s; i <= n; ++i)
      for (int j = s - 1; j < i; ++j) {
        const double cost = std::max(best[s - 1][j], before[i] - before[j]);
        if (cost < best[s][i]) best[s][i] = cost, cut[s][i] = j;
      }
  std::vector<int> first(stages + 1, n);
  for (int s = stages, i = n; s > 0; --s) first[s - 1] = i = cut[s][i];
  return first;
}

}  // namespace trireme::schedule
