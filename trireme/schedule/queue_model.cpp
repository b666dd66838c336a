#include "trireme/schedule/queue_model.h"

#include <fmt/format.h>

#include <deque>

namespace trireme::schedule {
namespace {

struct RankState {
  int next = 0;                                 // index of the action to start
  std::map<Queue, std::deque<int>> queues;      // actions started and not finished, by queue
  std::vector<bool> finished;
};

// Two heads are the same collective when they say the same of themselves.
bool same_collective(const Action& a, const Action& b) {
  return a.kind == b.kind && a.owner == b.owner && a.micro_batch == b.micro_batch;
}

class Model {
 public:
  explicit Model(const std::vector<RankProgram>& programs) : programs_(programs), ranks_(programs.size()) {
    for (size_t r = 0; r < ranks_.size(); ++r) ranks_[r].finished.resize(programs[r].schedule->actions.size());
  }

  std::optional<Stall> run() {
    bool progress = true;
    while (progress) {
      progress = false;
      for (size_t r = 0; r < ranks_.size(); ++r) {
        while (start_next(r)) progress = true;
        if (finish_heads(r)) progress = true;
      }
    }
    Stall stall;
    for (size_t r = 0; r < ranks_.size(); ++r) describe_wait(r, stall);
    if (stall.lines.empty()) return std::nullopt;
    return stall;
  }

 private:
  const Action& action(size_t rank, int index) const { return programs_[rank].schedule->actions[index]; }

  // The first unfinished asynchronous action that has to be complete before action `index`; -1 when none.
  int blocker(size_t rank, int index) const {
    for (const auto& [queue, actions] : ranks_[rank].queues)
      for (int pending : actions) {
        const int at = action(rank, pending).completes_at;
        if (at < 0 || at <= index) return pending;
      }
    return -1;
  }

  bool start_next(size_t rank) {
    RankState& state = ranks_[rank];
    if (state.next >= static_cast<int>(state.finished.size()) || blocker(rank, state.next) >= 0) return false;
    const Action& a = action(rank, state.next);
    const auto members = programs_[rank].members.find(a.queue);
    if (a.queue == Queue::compute || members == programs_[rank].members.end() || members->second.size() < 2)
      state.finished[state.next] = true;
    else
      state.queues[a.queue].push_back(state.next);
    ++state.next;
    return true;
  }

  bool finish_heads(size_t rank) {
    bool any = false;
    for (auto& [queue, actions] : ranks_[rank].queues) {
      if (actions.empty()) continue;
      const Action& head = action(rank, actions.front());
      const std::vector<int>& members = programs_[rank].members.at(queue);
      bool all = true;
      for (int m : members) {
        const auto& theirs = ranks_[m].queues[queue];
        all = all && !theirs.empty() && same_collective(head, action(m, theirs.front()));
      }
      if (!all) continue;
      for (int m : members) {
        auto& theirs = ranks_[m].queues[queue];
        ranks_[m].finished[theirs.front()] = true;
        theirs.pop_front();
      }
      any = true;
    }
    return any;
  }

  void describe_wait(size_t rank, Stall& stall) const {
    const RankState& state = ranks_[rank];
    const Schedule& s = *programs_[rank].schedule;
    const int total = static_cast<int>(state.finished.size());
    const int pending = blocker(rank, state.next);
    if (state.next >= total && pending < 0) {
      for (const auto& [queue, actions] : state.queues)
        if (!actions.empty()) add_head(rank, queue, actions.front(), stall);
      return;
    }
    if (pending >= 0) {
      stall.lines.push_back(fmt::format("rank {} cannot start #{} {} before #{} {} completes", rank, state.next,
                                        state.next < total ? describe(s, s.actions[state.next]) : "end", pending,
                                        describe(s, s.actions[pending])));
    }
    for (const auto& [queue, actions] : state.queues)
      if (!actions.empty()) add_head(rank, queue, actions.front(), stall);
  }

  void add_head(size_t rank, Queue queue, int head, Stall& stall) const {
    const Schedule& s = *programs_[rank].schedule;
    for (int m : programs_[rank].members.at(queue)) {
      const auto it = ranks_[m].queues.find(queue);
      const bool empty = it == ranks_[m].queues.end() || it->second.empty();
      if (!empty && same_collective(s.actions[head], action(m, it->second.front()))) continue;
      stall.lines.push_back(fmt::format(
          "rank {} waits in queue {} with #{} {} for rank {}, which {}", rank, name_of(queue), head,
          describe(s, s.actions[head]), m,
          empty ? "has nothing there" : "has " + describe(*programs_[m].schedule, action(m, it->second.front()))));
    }
  }

  const std::vector<RankProgram>& programs_;
  mutable std::vector<RankState> ranks_;
};

}  // namespace

std::optional<Stall> run_queue_model(const std::vector<RankProgram>& programs) { return Model(programs).run(); }

}  // namespace trireme::schedule
