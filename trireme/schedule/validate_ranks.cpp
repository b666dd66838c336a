// Rules between ranks: which ranks communicate, in which order, whether all of them reach the end, and whether values
// in memory that they share lie at the same places.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "trireme/schedule/validate.h"
#include "trireme/schedule/validate_rules.h"

namespace trireme::schedule {
namespace {

using Problems = std::vector<std::string>;

class Ranks {
 public:
  Ranks(const std::vector<RankProgram>& programs, Problems& problems) : programs_(programs), problems_(problems) {
    for (const RankProgram& p : programs) sort_actions(*p.schedule);
  }

  void check() {
    for (int r = 0; r < count(); ++r) {
      check_units(r);
      check_messages(r);
      for (const auto& [kind, members] : program(r).members)
        if (kind != QueueKind::send && kind != QueueKind::receive) compare(r, members, Queue{kind}, "queue");
      for (const comm::UnitAxisTraits& axis : comm::kUnitAxes)
        compare(r, program(r).inside[axis.axis], inside(axis), axis.adjective);
    }
  }

 private:
  using Queues = std::map<Queue, std::vector<int>>;

  // Computation that meets other ranks inside, as if in a queue of its own.
  static Queue inside(const comm::UnitAxisTraits& axis) {
    return {QueueKind::compute, -1, 1 + static_cast<int>(axis.axis)};
  }

  int count() const { return static_cast<int>(programs_.size()); }
  const RankProgram& program(int rank) const { return programs_[rank]; }
  const Action& action(int rank, int index) const { return program(rank).schedule->actions[index]; }
  std::string name(int rank, int index) const {
    return fmt::format("rank {}'s #{} {}", rank, index, describe(*program(rank).schedule, action(rank, index)));
  }

  // Ranks mostly share their lists.
  void sort_actions(const Schedule& list) {
    const auto [place, is_new] = queues_.try_emplace(&list);
    if (!is_new) return;
    auto& queues = place->second;
    const auto& actions = list.actions;
    for (int i = 0; i < static_cast<int>(actions.size()); ++i) {
      const Action& a = actions[i];
      if (a.queue.kind != QueueKind::compute) queues[a.queue].push_back(i);
      for (const comm::UnitAxisTraits& axis : comm::kUnitAxes)
        if (a.meets[axis.axis]) queues[inside(axis)].push_back(i);
    }
  }
  const Queues& queues_of(int rank) const { return queues_.at(program(rank).schedule); }
  const std::vector<int>& entries(int rank, const Queue& queue) const {
    static const std::vector<int> kNone;
    const auto& queues = queues_of(rank);
    const auto it = queues.find(queue);
    return it == queues.end() ? kNone : it->second;
  }

  // Each unit runs on one rank of a pipeline. Checked once, for the pipeline's first rank.
  void check_units(int rank) {
    std::vector<int> pipeline = program(rank).stages;
    if (pipeline.empty()) pipeline = {rank};
    if (pipeline.front() != rank) return;
    const auto& names = program(rank).schedule->unit_names;
    std::map<int, int> runs;  // unit -> rank
    for (int r : pipeline)
      for (const Action& a : program(r).schedule->actions) {
        if (!is_computation(a.kind)) continue;
        const auto [held, fresh] = runs.try_emplace(a.owner, r);
        if (!fresh && held->second != r)
          problems_.push_back(fmt::format("rank {}: {} is of a unit that rank {} runs", r,
                                          describe(*program(r).schedule, a), held->second));
      }
    for (int u = 0; u < static_cast<int>(names.size()); ++u)
      if (runs.count(u) == 0)
        problems_.push_back(
            fmt::format("Forward({}) is missing: no rank of the pipeline of rank {} runs the unit", names[u], rank));
  }

  using Exchange = std::tuple<int, int, int, int64_t>;
  Exchange exchange(int rank, int index) const {
    const Action& a = action(rank, index);
    const bool message = is_message(a.kind);
    return {message ? -1 : static_cast<int>(a.kind), a.owner, a.micro_batch, a.bytes};
  }

  // Two queues must hold the same exchanges: reports the first difference.
  void compare(int r, const Queue& mine, int other, const Queue& theirs, const std::string& where) {
    if (program(r).schedule == program(other).schedule && mine == theirs) return;
    const std::vector<int>&a = entries(r, mine), &b = entries(other, theirs);
    const size_t n = std::min(a.size(), b.size());
    size_t k = 0;
    while (k < n && exchange(r, a[k]) == exchange(other, b[k])) ++k;
    if (k == a.size() && k == b.size()) return;
    if (k < n)
      problems_.push_back(
          fmt::format("{} and {} stand at the same place of {}; all ranks must come there in the same order, with the "
                      "same bytes",
                      name(r, a[k]), name(other, b[k]), where));
    else
      problems_.push_back(fmt::format("{} has no partner on rank {} in {}",
                                      k < a.size() ? name(r, a[k]) : name(other, b[k]), k < a.size() ? other : r,
                                      where));
  }

  void compare(int rank, std::span<const int> members, const Queue& queue, const char* what) {
    if (members.empty() || members.front() == rank) return;
    const std::string where = queue.kind == QueueKind::compute ? fmt::format("their {} passes", what)
                                                               : fmt::format("queue {}", name_of(queue));
    compare(members.front(), queue, rank, queue, where);
  }

  void check_messages(int rank) {
    const std::vector<int>& stages = program(rank).stages;
    const auto own = static_cast<int>(std::find(stages.begin(), stages.end(), rank) - stages.begin());
    for (const auto& [queue, actions] : queues_of(rank)) {
      if (queue.kind != QueueKind::send && queue.kind != QueueKind::receive) continue;
      if (queue.peer >= static_cast<int>(stages.size()) || queue.peer == own) {
        problems_.push_back(fmt::format("{} has no pipeline rank {} to go to", name(rank, actions[0]), queue.peer));
        continue;
      }
      const bool sends = queue.kind == QueueKind::send;
      const Queue theirs{sends ? QueueKind::receive : QueueKind::send, own, queue.lane};
      const int peer = stages[queue.peer];
      // Both sides see a difference: the sender reports it, or the receiver if there is no sender.
      if (sends || entries(peer, theirs).empty())
        compare(rank, queue, peer, theirs,
                fmt::format("the messages from {} to {}", sends ? rank : peer, sends ? peer : rank));
    }
  }

  const std::vector<RankProgram>& programs_;
  Problems& problems_;
  std::map<const Schedule*, Queues> queues_;
};

// Ranks read each other's values by their offsets, or hold one copy of them: each has the same values at the same
// places.
class SharedPlaces {
 public:
  SharedPlaces(const std::vector<RankList>& ranks, Problems& problems) : ranks_(ranks), problems_(problems) {}

  void check() {
    for (const Memory memory : {Memory::symmetric, Memory::host_shared, Memory::host_reduced})
      for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
        const auto& queues = ranks_[r].program.members;
        const auto members = queues.find(memory == Memory::host_shared ? QueueKind::gather : QueueKind::reduce);
        if (members == queues.end()) continue;
        if (const std::span<const int> m = members->second; !m.empty()) compare(m.front(), r, memory);
      }
  }

 private:
  const Schedule& list(int rank) const { return *ranks_[rank].program.schedule; }
  std::vector<const Value*> values(int rank, Memory memory) const {
    std::vector<const Value*> all;
    for (const Value& v : list(rank).values)
      if (v.memory == memory) all.push_back(&v);
    return all;
  }

  // Reports the first difference.
  void compare(int first, int rank, Memory memory) {
    if (&list(first) == &list(rank) && ranks_[first].arena == ranks_[rank].arena) return;
    const int64_t size = ranks_[first].arena->of(memory), other_size = ranks_[rank].arena->of(memory);
    const auto a = values(first, memory), b = values(rank, memory);
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
      if (a[i]->label != b[i]->label || a[i]->offset != b[i]->offset || a[i]->bytes != b[i]->bytes) {
        problems_.push_back(
            fmt::format("rank {} has {} at {}..{}, and rank {} has {} at {}..{}; they share this memory, so all values "
                        "in it lie at the same places",
                        first, a[i]->label, a[i]->offset, a[i]->offset + a[i]->bytes, rank, b[i]->label, b[i]->offset,
                        b[i]->offset + b[i]->bytes));
        return;
      }
    if (a.size() != b.size() || size != other_size)
      problems_.push_back(fmt::format(
          "rank {} has {} values in {} bytes, and rank {} has {} values in {} bytes; they share this memory, "
          "so all have the same",
          first, a.size(), size, rank, b.size(), other_size));
  }

  const std::vector<RankList>& ranks_;
  Problems& problems_;
};

}  // namespace

std::vector<std::string> validate_meetings(const std::vector<RankProgram>& programs) {
  Problems problems;
  std::set<const Schedule*> checked;
  for (const RankProgram& p : programs) {
    if (!checked.insert(p.schedule).second) continue;
    rules::Findings f(*p.schedule);
    rules::check_targets(*p.schedule, f);
    if (!f.empty()) return f.take();  // the rules below rely on these
  }
  Ranks(programs, problems).check();
  if (const auto stall = run_queue_model(programs))
    problems.push_back(fmt::format("the ranks wait for each other forever: {}", fmt::join(stall->lines, "; ")));
  return problems;
}

std::vector<std::string> validate_ranks(const std::vector<RankList>& ranks) {
  Problems problems;
  std::set<std::pair<const Schedule*, const Arena*>> checked;
  std::vector<RankProgram> programs;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const Schedule& s = *ranks[r].program.schedule;
    programs.push_back(ranks[r].program);
    if (!checked.insert({&s, ranks[r].arena}).second) continue;
    for (const std::string& p : validate_list(s, *ranks[r].arena)) problems.push_back(fmt::format("rank {}: {}", r, p));
  }
  for (std::string& p : validate_meetings(programs)) problems.push_back(std::move(p));
  SharedPlaces(ranks, problems).check();
  return problems;
}

}  // namespace trireme::schedule
