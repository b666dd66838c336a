#include "trireme/launch/hang/hang.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "trireme/base/process.h"
#include "trireme/base/text.h"
#include "trireme/launch/supervise/headline.h"

namespace trireme::launch {
namespace {
using base::CallState;
using base::FlightGroup;
using base::FlightLog;
using base::FlightRecord;

template <typename Matches>
const FlightGroup* group_of(const FlightLog& log, Matches matches) {
  for (const FlightGroup& group : std::span(log.header.groups, static_cast<std::size_t>(log.header.num_groups)))
    if (matches(group)) return &group;
  return nullptr;
}

const FlightGroup* group_of(const FlightLog& log, std::uint64_t key) {
  return group_of(log, [&](const FlightGroup& group) { return group.key == key; });
}

// Whether the two calls run one after the other: collectives of one group, or messages with one peer in one direction.
bool same_line(const FlightRecord& a, const FlightRecord& b) {
  if (a.group.view() != b.group.view() || a.peer != b.peer) return false;
  return a.peer < 0 || a.operation_code == b.operation_code;
}

// The oldest unfinished call in the line of the call that the rank waits for; null if it does not wait.
const FlightRecord* held_up_by(const FlightLog& log) {
  const FlightRecord* waited = nullptr;
  for (const FlightRecord& r : log.records) {
    if (r.id == log.header.waiting_id) waited = &r;
    if (log.header.waiting_id == 0 && !waited && r.state == CallState::failed) waited = &r;
  }
  if (!waited) return nullptr;
  for (const FlightRecord& r : log.records)
    if (same_line(r, *waited) && r.state != CallState::finished) return &r;
  return waited;
}

bool is_stopped(const RankView& view) {
  return view.process && (view.process->state == 'T' || view.process->state == 't');
}

class Search {
 public:
  Search(std::span<const RankView> ranks, std::int64_t now_us) : ranks_(ranks), now_us_(now_us) {
    for (const RankView& v : ranks)
      if (v.log.header.gave_up_us != 0) first_gave_up_ = std::min(first_gave_up_, v.log.header.gave_up_us);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      rank_at_[ranks[i].log.header.global_rank] = i;
      const FlightRecord* call = held_up_by(ranks[i].log);
      if (!call) continue;
      // A stopped process counts as not waiting, wherever it is in the call: the others wait for it.
      if (is_stopped(ranks[i])) continue;
      const std::int64_t since = since_of(i, *call);
      // A rank that comes to a call after others have given it up was missing; it does not count as waiting.
      if (since >= first_gave_up_) continue;
      const auto is_its_group = [&](const FlightGroup& group) { return group.name.view() == call->group.view(); };
      waits_[i] = {.call = call, .group = group_of(ranks[i].log, is_its_group), .since_us = since};
    }
    for (auto& [i, wait] : waits_) find_blockers(i, wait);
  }

  std::optional<HangVerdict> verdict() {
    if (waits_.empty()) return std::nullopt;
    const auto longest = std::ranges::min_element(waits_, {}, [](const auto& w) { return w.second.since_us; })->first;
    follow(longest);
    if (roots_.empty())
      for (const auto& [i, wait] : waits_) follow(i);
    // A stopped rank may have done its part of the call in which the others wait; then nobody else is to blame.
    if (roots_.empty())
      for (std::size_t i = 0; i < ranks_.size(); ++i)
        if (is_stopped(ranks_[i]))
          roots_.push_back({longest, {ranks_[i].log.header.global_rank, Blocker::Kind::not_done}});
    // If a rank waits though no rank is missing, the data have not arrived: the connection is stuck.
    const auto alone = std::ranges::find_if(waits_, [](const auto& w) { return w.second.blockers.empty(); });
    auto verdict = !roots_.empty()         ? verdict_on_roots()
                   : alone != waits_.end() ? verdict_on_connection(alone->first)
                                           : verdict_on_circle(longest);
    verdict.waited_us = words_for(longest).waited_us;
    return verdict;
  }

 private:
  using Blocker = HangBlocker;
  struct Wait {
    const FlightRecord* call = nullptr;
    const FlightGroup* group = nullptr;
    std::int64_t since_us = 0;
    std::vector<Blocker> blockers = {};
  };

  std::int64_t since_of(std::size_t i, const FlightRecord& call) const {
    const base::FlightHeader& h = ranks_[i].log.header;
    return h.waiting_id != 0 ? h.waiting_since_us : call.started_us;
  }

  std::vector<int> members_of(const FlightGroup& group) const {
    std::vector<int> members(group.members, group.members + std::min(group.size, base::kFlightMembers));
    for (const RankView& v : ranks_)
      if (group.size > base::kFlightMembers && group_of(v.log, group.key)) members.push_back(v.log.header.global_rank);
    std::ranges::sort(members);
    members.erase(std::unique(members.begin(), members.end()), members.end());
    return members;
  }

  void find_blockers(std::size_t i, Wait& wait) const {
    if (!wait.group) return;
    const int me = ranks_[i].log.header.global_rank;
    if (wait.call->peer >= 0) {
      if (wait.call->peer < std::min(wait.group->size, base::kFlightMembers))
        wait.blockers.push_back({wait.group->members[wait.call->peer], Blocker::Kind::no_message});
      return;
    }
    for (const int member : members_of(*wait.group)) {
      if (member == me) continue;
      if (const auto kind = lack_of(member, wait)) wait.blockers.push_back({member, *kind});
    }
  }

  // What `member` has not done in a collective; empty if it has done its part, or waits in the same group too.
  std::optional<Blocker::Kind> lack_of(int member, const Wait& wait) const {
    const auto at = rank_at_.find(member);
    if (at == rank_at_.end()) return Blocker::Kind::unknown;
    const FlightLog& log = ranks_[at->second].log;
    const FlightGroup* group = group_of(log, wait.group->key);
    if (!group || group->num_calls <= wait.call->sequence) return Blocker::Kind::not_called;
    const auto other = waits_.find(at->second);
    if (other != waits_.end() && other->second.group && other->second.group->key == wait.group->key)
      return std::nullopt;
    for (const FlightRecord& r : log.records) {
      if (!same_line(r, *wait.call) || r.sequence != wait.call->sequence || r.state == CallState::finished) continue;
      return r.started_us >= first_gave_up_ ? Blocker::Kind::not_called : Blocker::Kind::not_done;
    }
    return std::nullopt;
  }

  void follow(std::size_t from) {
    if (!seen_.insert(from).second) return;
    for (const Blocker& b : waits_.at(from).blockers) {
      const auto at = rank_at_.find(b.global_rank);
      if (at != rank_at_.end() && waits_.contains(at->second))
        follow(at->second);
      else
        roots_.push_back({from, b});
    }
  }

  HangCall words_for(std::size_t i) const {
    const Wait& w = waits_.at(i);
    const std::int64_t end = ranks_[i].log.header.gave_up_us != 0 ? ranks_[i].log.header.gave_up_us : now_us_;
    return {w.call, w.group ? std::string(w.group->name.view()) : "", end - w.since_us,
            ranks_[i].log.header.global_rank};
  }

  std::vector<int> waiting_ranks() const {
    std::vector<int> ranks;
    for (const auto& [i, wait] : waits_) ranks.push_back(ranks_[i].log.header.global_rank);
    return ranks;
  }

  // Names together all ranks that are missing in the same call for the same reason.
  HangVerdict verdict_on_roots() const {
    const auto& [from, first] = roots_.front();
    HangVerdict verdict;
    std::set<int> named;
    for (const auto& [other, blocker] : roots_)
      if (other == from && blocker.kind == first.kind) named.insert(blocker.global_rank);
    verdict.stuck.assign(named.begin(), named.end());
    const HangCall call = words_for(from);
    verdict.sentence = say_missing(verdict.stuck, first.kind, call);
    verdict.key = fmt::format("hang of rank {} in {}", verdict.stuck.front(), say_call(*call.record, false));
    for (std::size_t k = 0; k < std::min<std::size_t>(verdict.stuck.size(), 4); ++k) {
      const auto at = rank_at_.find(verdict.stuck[k]);
      const std::string doing = at == rank_at_.end() ? "" : say_doing(ranks_[at->second], now_us_);
      if (k == 0) verdict.sentence += doing.empty() ? "; its recorder is not here" : "; it " + doing;
      if (k > 0 && !doing.empty()) verdict.details += fmt::format("  rank {} {}\n", verdict.stuck[k], doing);
      if (at != rank_at_.end()) verdict.details += say_process(ranks_[at->second]);
    }
    const std::vector<int> waiting = waiting_ranks();
    verdict.details += fmt::format("  {} {} for {}\n", name_ranks(waiting), waiting.size() == 1 ? "waits" : "wait",
                                   verdict.stuck.size() == 1 ? "it" : "them");
    return verdict;
  }

  HangVerdict verdict_on_connection(std::size_t longest) const {
    const HangCall call = words_for(longest);
    return {.sentence = fmt::format("{} have all joined {} and no data has moved between them for {}: the connection "
                                    "between them is cut or stalled",
                                    name_by_host(ranks_, waiting_ranks()), say_call(*call.record, true),
                                    base::human_duration(double(call.waited_us) / 1e6)),
            .key = fmt::format("hang of the connection in {}", say_call(*call.record, false))};
  }

  HangVerdict verdict_on_circle(std::size_t longest) const {
    HangVerdict verdict;
    const HangCall call = words_for(longest);
    verdict.sentence = fmt::format("{} wait for each other for {}", name_ranks(waiting_ranks()),
                                   base::human_duration(double(call.waited_us) / 1e6));
    std::size_t told = 0;
    for (const auto& [i, wait] : waits_) {
      if (wait.blockers.empty() || ++told > 4) continue;
      verdict.sentence +=
          fmt::format("{} rank {} for rank {} in {}", told == 1 ? ":" : ",", ranks_[i].log.header.global_rank,
                      wait.blockers[0].global_rank, say_call(*wait.call, true));
    }
    verdict.key = fmt::format("deadlock in {}", say_call(*call.record, false));
    return verdict;
  }

  std::span<const RankView> ranks_;
  std::int64_t now_us_;
  std::int64_t first_gave_up_ = std::numeric_limits<std::int64_t>::max();
  std::map<int, std::size_t> rank_at_;  // by global rank
  std::map<std::size_t, Wait> waits_;   // by index in ranks_
  std::set<std::size_t> seen_;
  std::vector<std::pair<std::size_t, Blocker>> roots_;  // a waiting rank, and a missing one that waits for nobody
};
}  // namespace

std::vector<RankView> view_ranks(const std::filesystem::path& folder) {
  std::vector<RankView> views;
  std::vector<ProcessId> processes;
  std::vector<std::size_t> here;
  const std::string host = base::this_host();
  for (FlightLog& log : base::read_flights(folder)) {
    if (log.header.host.view() == host) {
      here.push_back(views.size());
      processes.push_back({log.header.pid, log.header.process_start});
    }
    views.push_back({std::move(log)});
  }
  const std::vector<ProcessLook> looks = look_at(processes);
  for (std::size_t i = 0; i < here.size(); ++i) views[here[i]].process = looks[i];
  return views;
}

std::optional<HangVerdict> find_hang(std::span<const RankView> ranks, std::int64_t now_us) {
  return Search(ranks, now_us).verdict();
}

void add_stack(RankView& rank) {
  constexpr std::size_t kFrames = 24;
  if (rank.process && rank.process->state != 0) rank.process->stack = stack_of(rank.log.header.pid, kFrames);
}

std::optional<HangVerdict> look_for_hang(const std::filesystem::path& folder) {
  constexpr std::size_t kMostStacks = 4;
  std::vector<RankView> views = view_ranks(folder);
  const std::int64_t now = time_of_view(views);
  auto verdict = find_hang(views, now);
  if (!verdict || verdict->stuck.empty()) return verdict;
  std::size_t taken = 0;
  for (RankView& view : views)
    if (std::ranges::find(verdict->stuck, view.log.header.global_rank) != verdict->stuck.end() && taken++ < kMostStacks)
      add_stack(view);
  return find_hang(views, now);
}

std::int64_t time_of_view(std::span<const RankView> ranks) {
  std::int64_t last = 0;
  for (const RankView& v : ranks) {
    if (v.process && v.process->state != 0) return base::now_us();
    const base::FlightHeader& h = v.log.header;
    last = std::max({last, h.since_us, h.waiting_since_us, h.seen_us, h.gave_up_us});
    for (const FlightRecord& r : v.log.records) last = std::max({last, r.started_us, r.finished_us});
  }
  return last;
}

}  // namespace trireme::launch
