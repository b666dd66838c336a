// The words of a verdict on a hang.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "trireme/base/text.h"
#include "trireme/launch/hang/hang.h"
#include "trireme/launch/supervise/headline.h"

namespace trireme::launch {
namespace {
using base::CallState;
using base::FlightRecord;

std::string seconds(std::int64_t us) { return base::human_duration(double(std::max<std::int64_t>(us, 0)) / 1e6); }

std::string host_of(const base::FlightHeader& header) {
  const std::string_view host = header.host.view();
  return std::string(host.substr(0, host.find(' ')));
}

// The rank's action or phase; empty if neither is recorded.
std::string place_of(const base::FlightHeader& h) {
  const std::string_view action = h.action.view(), phase = h.phase.view();
  if (!action.empty())
    return fmt::format("in {} of {}", action, phase.empty() ? fmt::format("step {}", h.step) : phase);
  return phase.empty() ? "" : fmt::format("in phase {}", phase);
}
}  // namespace

std::string say_call(const FlightRecord& r, bool exact) {
  std::string text(r.operation.view());
  if (exact) text += fmt::format(" #{}", base::human_count(static_cast<std::int64_t>(r.sequence)));
  if (!r.group.view().empty()) text += fmt::format(" of group {}", r.group.view());
  std::vector<std::string> parts;
  if (!r.action.view().empty())
    parts.push_back(fmt::format("{} of step {}", r.action.view(), r.step));
  else if (r.step > 0)
    parts.push_back(fmt::format("step {}", r.step));
  if (!r.dtype.view().empty())
    parts.push_back(
        fmt::format("{} {}, {}", base::human_count(r.elements), r.dtype.view(), base::human_bytes(r.bytes)));
  return parts.empty() ? text : fmt::format("{} ({})", text, base::join(parts, ", "));
}

std::string say_missing(const std::vector<int>& ranks, HangBlocker::Kind kind, const HangCall& call) {
  const std::string who = name_ranks(ranks), what = say_call(*call.record, true), time = seconds(call.waited_us);
  const char* has = ranks.size() == 1 ? "has" : "have";
  switch (kind) {
    case HangBlocker::Kind::not_done:
      return fmt::format("{} {} called {} but not done its part for {}", who, has, what, time);
    case HangBlocker::Kind::no_message:
      return call.record->operation.view() == "receive"
                 ? fmt::format("{} {} not sent what rank {} waits for in {} for {}", who, has, call.waiting_rank, what,
                               time)
                 : fmt::format("{} {} not received what rank {} sends in {} for {}", who, has, call.waiting_rank, what,
                               time);
    default:
      return fmt::format("{} {} not joined {} for {}", who, has, what, time);
  }
}

std::string say_doing(const RankView& rank, std::int64_t now_us) {
  const base::FlightHeader& h = rank.log.header;
  std::string text = rank.process ? describe(*rank.process) : "runs on another machine";
  const std::string place = place_of(h);
  const bool ended = rank.process && rank.process->state == 0;
  if (!place.empty()) {
    text += fmt::format(", {}", place);
    if (!ended) text += fmt::format(" for {}", seconds(now_us - h.since_us));
  } else if (!rank.log.records.empty()) {
    const FlightRecord& last = rank.log.records.back();
    text += fmt::format("{} {} {}", ended ? "" : ",", last.finished_us != 0 ? "after" : "in", say_call(last, true));
    if (!ended) text += fmt::format(" for {}", seconds(now_us - std::max(last.finished_us, last.started_us)));
  } else {
    text += ", before its first call";
  }
  return text;
}

std::string say_process(const RankView& rank) {
  const base::FlightHeader& h = rank.log.header;
  std::string text = fmt::format("  rank {} is process {} on {}", h.global_rank, h.pid, host_of(h));
  if (rank.process)
    if (const std::string stack = describe_stack(rank.process->stack); !stack.empty()) text += "; its stack: " + stack;
  return text + "\n";
}

std::string name_by_host(std::span<const RankView> views, const std::vector<int>& ranks) {
  std::map<std::string, std::vector<int>> by_host;
  for (const RankView& v : views)
    if (std::ranges::find(ranks, v.log.header.global_rank) != ranks.end())
      by_host[host_of(v.log.header)].push_back(v.log.header.global_rank);
  if (by_host.size() < 2) return name_ranks(ranks);
  std::vector<std::string> parts;
  for (const auto& [host, there] : by_host) parts.push_back(fmt::format("{} on {}", name_ranks(there), host));
  return base::join(parts, " and ");
}

std::string describe_ranks(std::span<const RankView> ranks, std::int64_t now_us) {
  std::string text;
  for (const RankView& v : ranks) {
    const base::FlightHeader& h = v.log.header;
    text += fmt::format("rank {}: {}", h.global_rank, say_doing(v, now_us));
    if (h.waiting_id != 0)
      for (const FlightRecord& r : v.log.records)
        if (r.id == h.waiting_id)
          text += fmt::format("; {} {} for {}", h.gave_up_us != 0 ? "gave up" : "waits in", say_call(r, true),
                              seconds((h.gave_up_us != 0 ? h.gave_up_us : now_us) - h.waiting_since_us));
    text += "\n";
    if (v.process && !v.process->stack.empty()) text += say_process(v);
  }
  return text;
}

std::string describe_calls(const base::FlightLog& log, std::size_t count) {
  std::string text;
  const std::size_t begin = log.records.size() - std::min(count, log.records.size());
  for (std::size_t i = begin; i < log.records.size(); ++i) {
    const FlightRecord& r = log.records[i];
    const char* state = r.state == CallState::started ? "under way" : r.state == CallState::failed ? "failed" : "done";
    text += fmt::format("  {:>9}  {}", state, say_call(r, true));
    if (r.finished_us != 0) text += fmt::format("  {:.3f} ms", double(r.finished_us - r.started_us) / 1e3);
    text += "\n";
  }
  return text;
}

}  // namespace trireme::launch
