#include "trireme/schedule/queue_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <numeric>
#include <span>

namespace trireme::schedule {
namespace {

struct RankState {
  int next = 0;                                 // index of the action to start
  double clock = 0;
  std::map<Queue, std::deque<int>> queues;      // actions started and not finished, by queue
  std::vector<std::pair<int, int>> pending;     // (completes_at, action) of those that have a later completion
  int blocked_on = -1;                          // an action without a completion position: it returns when finished
  bool talking = false;                         // at a computation that other members have not reached
  std::vector<bool> finished;
};

// Whether two actions are the two sides of one exchange: the same collective, or a send and its receive.
bool same_exchange(const Action& a, const Action& b) {
  const bool kinds = is_message(a.kind) ? is_message(b.kind) && a.kind != b.kind : a.kind == b.kind;
  return kinds && a.owner == b.owner && a.micro_batch == b.micro_batch && a.bytes == b.bytes;
}

class Model {
 public:
  Model(const std::vector<RankProgram>& programs, const Costs& costs)
      : programs_(programs), ranks_(programs.size()), every_rank_(programs.size()) {
    std::iota(every_rank_.begin(), every_rank_.end(), 0);
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const auto known = costs.find(programs[r].schedule);
      costs_.push_back(known == costs.end() ? nullptr : known->second.data());
      const size_t n = programs[r].schedule->actions.size();
      ranks_[r].finished.resize(n);
      out_.spans.emplace_back(n);
      // A program's pipeline rank is its place in its own table.
      const auto& stages = programs[r].stages;
      own_stage_.push_back(
          static_cast<int>(std::find(stages.begin(), stages.end(), static_cast<int>(r)) - stages.begin()));
    }
  }

  Simulation run() {
    std::deque<int> ready;
    std::vector<bool> queued(ranks_.size(), true);
    for (size_t r = 0; r < ranks_.size(); ++r) ready.push_back(static_cast<int>(r));
    while (!ready.empty()) {
      const int r = ready.front();
      ready.pop_front();
      queued[r] = false;
      touched_.clear();
      while (start_next(r) || finish_heads(r)) {
      }
      for (int t : touched_)
        if (!queued[t]) queued[t] = true, ready.push_back(t);
    }
    Stall stall;
    for (size_t r = 0; r < ranks_.size(); ++r) describe_wait(static_cast<int>(r), stall);
    if (!stall.lines.empty()) out_.stall = std::move(stall);
    return std::move(out_);
  }

 private:
  const Action& action(int rank, int index) const { return programs_[rank].schedule->actions[index]; }
  int count(int rank) const { return static_cast<int>(ranks_[rank].finished.size()); }

  // Ranks that take part in the exchange at the head of a queue, the queue's own rank included, and their queues.
  // Fewer than two: nothing to wait for.
  class Partners {
   public:
    Partners() = default;
    Partners(std::span<const int> members, const Queue& queue) : members_(members), queue_(queue) {}
    Partners(int own, const Queue& queue, int peer, const Queue& theirs)
        : ends_{own, peer}, queue_(queue), theirs_(theirs), is_message_(true) {}
    size_t size() const { return is_message_ ? 2 : members_.size(); }
    int rank(size_t i) const { return is_message_ ? ends_[i] : members_[i]; }
    const Queue& queue(size_t i) const { return is_message_ && i == 1 ? theirs_ : queue_; }

   private:
    std::span<const int> members_;
    std::array<int, 2> ends_{};
    Queue queue_, theirs_;
    bool is_message_ = false;
  };

  Partners partners(int rank, const Queue& queue) const {
    const RankProgram& program = programs_[rank];
    if (queue.kind == QueueKind::send || queue.kind == QueueKind::receive) {
      if (queue.peer < 0 || queue.peer >= static_cast<int>(program.stages.size())) return {rank, queue, -1, queue};
      const QueueKind other = queue.kind == QueueKind::send ? QueueKind::receive : QueueKind::send;
      return {rank, queue, program.stages[queue.peer], Queue{other, own_stage_[rank], queue.lane}};
    }
    if (is_transfer(queue.kind)) return {std::span(&every_rank_[static_cast<size_t>(rank)], 1), queue};
    const auto members = program.members.find(queue.kind);
    return members == program.members.end() ? Partners() : Partners(members->second, queue);
  }

  ActionCost cost(int rank, int index) const { return costs_[rank] == nullptr ? ActionCost{} : costs_[rank][index]; }

  // The first unfinished asynchronous action that must be complete before action `index`; -1: none. Moves the rank's
  // clock to the end of the finished ones.
  int blocker(int rank, int index) {
    RankState& state = ranks_[rank];
    for (size_t i = 0; i < state.pending.size();) {
      const auto [at, pending] = state.pending[i];
      if (at > index) {
        ++i;
        continue;
      }
      if (!state.finished[pending]) return pending;
      state.clock = std::max(state.clock, out_.spans[rank][pending].end);
      state.pending[i] = state.pending.back();
      state.pending.pop_back();
    }
    return -1;
  }

  bool start_next(int rank) {
    RankState& state = ranks_[rank];
    if (state.blocked_on >= 0) {
      if (!state.finished[state.blocked_on]) return false;
      state.clock = std::max(state.clock, out_.spans[rank][state.blocked_on].end);
      state.blocked_on = -1;
    }
    if (state.next >= count(rank) || blocker(rank, state.next) >= 0) return false;
    const Action& a = action(rank, state.next);
    if (a.queue.kind == QueueKind::compute) return compute(rank, a);
    Span& span = out_.spans[rank][state.next];
    state.clock += cost(rank, state.next).compute;
    span.begin = state.clock;
    if (partners(rank, a.queue).size() < 2 && !is_transfer(a.kind)) {
      span.end = state.clock;
      state.finished[state.next] = true;
    } else {
      state.queues[a.queue].push_back(state.next);
      touched_.push_back(rank);
    }
    if (a.completes_at >= 0)
      state.pending.emplace_back(a.completes_at, state.next);
    else if (!state.finished[state.next])
      state.blocked_on = state.next;
    ++state.next;
    return true;
  }

  bool compute(int rank, const Action& a) {
    RankState& state = ranks_[rank];
    // All ranks that it communicates with, directly or through another axis, reach it together.
    std::vector<int> met{rank};
    for (size_t i = 0; i < met.size(); ++i)
      for (const comm::UnitAxisTraits& axis : comm::kUnitAxes)
        if (a.meets[axis.axis])
          for (int m : programs_[met[i]].inside[axis.axis])
            if (std::find(met.begin(), met.end(), m) == met.end()) met.push_back(m);
    if (met.size() < 2) {
      finish_computation(rank, state.clock);
      return true;
    }
    state.talking = true;
    double start = state.clock;
    for (int m : met) {
      if (!ranks_[m].talking || !same_exchange(a, action(m, ranks_[m].next))) return false;
      start = std::max(start, ranks_[m].clock);
    }
    for (int m : met) {
      ranks_[m].talking = false;
      finish_computation(m, start);
      touched_.push_back(m);
    }
    return true;
  }

  void finish_computation(int rank, double start) {
    RankState& state = ranks_[rank];
    const double seconds = cost(rank, state.next).compute;
    out_.spans[rank][state.next] = {start, start + seconds};
    state.clock = start + seconds;
    state.finished[state.next++] = true;
  }

  bool finish_heads(int rank) {
    bool any = false;
    for (auto& [queue, actions] : ranks_[rank].queues) {
      if (actions.empty()) continue;
      const Action& head = action(rank, actions.front());
      const Partners all = partners(rank, queue);
      double start = 0, seconds = 0;
      // Ranks mostly come in the order of their numbers: the last is asked first, so that all are asked once.
      size_t left = all.size();
      for (; left > 0; --left) {
        const int m = all.rank(left - 1), other = m < 0 ? -1 : head_of(m, all.queue(left - 1));
        if (other < 0 || (m != rank && !same_exchange(head, action(m, other)))) break;
        start = std::max(start, out_.spans[m][other].begin);
        seconds = std::max(seconds, cost(m, other).transfer);
      }
      if (left > 0) continue;
      const double end = std::max(start, lane_free(all)) + seconds;
      for (size_t i = 0; i < all.size(); ++i) {
        const int m = all.rank(i);
        const Queue& theirs = all.queue(i);
        auto& q = ranks_[m].queues[theirs];
        out_.spans[m][q.front()].end = end;
        ranks_[m].finished[q.front()] = true;
        q.pop_front();
        free_at_[{m, device_of(theirs)}] = end;
        touched_.push_back(m);
      }
      any = true;
    }
    return any;
  }

  double lane_free(const Partners& all) {
    double at = 0;
    for (size_t i = 0; i < all.size(); ++i)
      if (const auto it = free_at_.find({all.rank(i), device_of(all.queue(i))}); it != free_at_.end())
        at = std::max(at, it->second);
    return at;
  }

  // A disk reads or writes: what goes both ways shares its rate.
  static Queue device_of(const Queue& queue) {
    return queue.kind == QueueKind::evict && queue.lane == kDiskLane ? Queue{QueueKind::fetch, -1, kDiskLane} : queue;
  }

  int head_of(int rank, const Queue& queue) const {
    const auto it = ranks_[rank].queues.find(queue);
    return it == ranks_[rank].queues.end() || it->second.empty() ? -1 : it->second.front();
  }

  void describe_wait(int rank, Stall& stall) {
    RankState& state = ranks_[rank];
    const Schedule& s = *programs_[rank].schedule;
    const auto say = [&](int index) { return fmt::format("#{} {}", index, describe(s, s.actions[index])); };
    if (state.talking && state.next < count(rank))
      stall.lines.push_back(
          fmt::format("rank {} waits inside {} for the ranks it shares the unit with", rank, say(state.next)));
    if (const int pending = blocker(rank, state.next); pending >= 0)
      stall.lines.push_back(fmt::format("rank {} cannot start {} before {} completes", rank,
                                        state.next < count(rank) ? say(state.next) : "the next step", say(pending)));
    for (const auto& [queue, actions] : state.queues) {
      if (actions.empty()) continue;
      const Partners all = partners(rank, queue);
      for (size_t i = 0; i < all.size(); ++i) {
        const int m = all.rank(i);
        if (m == rank) continue;
        const int other = m < 0 ? -1 : head_of(m, all.queue(i));
        if (other >= 0 && same_exchange(s.actions[actions.front()], action(m, other))) continue;
        stall.lines.push_back(fmt::format(
            "rank {} waits in queue {} with {} for rank {}, which {}", rank, name_of(queue), say(actions.front()), m,
            other < 0 ? "has nothing there" : "has " + describe(*programs_[m].schedule, action(m, other))));
      }
    }
  }

  const std::vector<RankProgram>& programs_;
  std::vector<const ActionCost*> costs_;  // of each rank's actions; null: free
  std::vector<RankState> ranks_;
  std::vector<int> own_stage_, touched_, every_rank_;
  std::map<std::pair<int, Queue>, double> free_at_;
  Simulation out_;
};

}  // namespace

double Simulation::length() const {
  double last = 0;
  for (const auto& rank : spans)
    for (const Span& s : rank) last = std::max(last, s.end);
  return last;
}

double Simulation::computing(const RankProgram& program, int index) const {
  double sum = 0;
  for (size_t i = 0; i < spans[index].size(); ++i)
    if (is_computation(program.schedule->actions[i].kind)) sum += spans[index][i].end - spans[index][i].begin;
  return sum;
}

Simulation simulate(const std::vector<RankProgram>& programs, const Costs& costs) {
  return Model(programs, costs).run();
}

Costs costs_of(const std::vector<RankProgram>& programs, const Rates& rates) {
  Costs costs;
  for (const RankProgram& program : programs) {
    const auto [place, is_new] = costs.try_emplace(program.schedule);
    if (!is_new) continue;
    for (const Action& a : program.schedule->actions) {
      ActionCost cost;
      if (is_computation(a.kind))
        cost.compute = a.cost * rates.compute_scale;
      else if (a.queue.kind != QueueKind::compute)  // batches, clip, optimizer: not charged
        cost.transfer = rates.latency + double(a.bytes) * rates.seconds_per_byte;
      place->second.push_back(cost);
    }
  }
  return costs;
}

std::optional<Stall> run_queue_model(const std::vector<RankProgram>& programs) {
  return simulate(programs, Costs{}).stall;
}

}  // namespace trireme::schedule
