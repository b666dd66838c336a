// Chrome's trace event format: "M" names processes and threads, "X" is a slice, "s" and "f" the two ends of an arrow.
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "trireme/schedule/render_timeline.h"

namespace trireme::schedule {
namespace {

using Json = nlohmann::ordered_json;
constexpr double kMicroseconds = 1e6;

// What identifies a message at both ends: sender, receiver, lane, unit, micro-batch.
using MessageKey = std::tuple<int, int, int, int, int>;

MessageKey key_of(const Row& row, const TimelineSpan& s) {
  const bool sends = s.kind == ActionKind::send;
  return {sends ? row.rank : s.peer_rank, sends ? s.peer_rank : row.rank, s.queue.lane, s.owner, s.micro_batch};
}

Json metadata(const char* name, int rank, int thread, const char* key, Json value) {
  return {{"name", name}, {"ph", "M"}, {"pid", rank}, {"tid", thread}, {"args", {{key, std::move(value)}}}};
}

Json slice(int rank, int thread, const TimelineSpan& s) {
  Json args = {{"action", s.action}};
  const Owner owner = traits_of(s.kind).owner;
  if (s.owner >= 0) args[owner == Owner::unit ? "unit" : owner == Owner::group ? "group" : "value"] = s.owner;
  if (s.micro_batch >= 0) args["micro_batch"] = s.micro_batch;
  if (is_computation(s.kind)) args["chunk"] = s.chunk;
  if (s.bytes > 0) args["bytes"] = s.bytes;
  if (s.begin > s.posted) args["waited_us"] = (s.begin - s.posted) * kMicroseconds;
  return {{"name", s.label},
          {"cat", name_of(s.kind)},
          {"ph", "X"},
          {"pid", rank},
          {"tid", thread},
          {"ts", s.begin * kMicroseconds},
          {"dur", s.seconds() * kMicroseconds},
          {"args", std::move(args)}};
}

// One end of an arrow. The viewer binds it to the slice of its thread at its time, which is the message's.
Json arrow_end(int rank, int thread, const TimelineSpan& s, int id) {
  const bool sends = s.kind == ActionKind::send;
  Json end = {{"name", "message"}, {"cat", "message"}, {"ph", sends ? "s" : "f"},      {"id", id},
              {"pid", rank},       {"tid", thread},    {"ts", s.begin * kMicroseconds}};
  if (!sends) end["bp"] = "e";
  return end;
}

// A number for every message whose two ends are in the picture.
std::map<MessageKey, int> arrows_of(const Timeline& timeline) {
  std::map<MessageKey, int> ends, arrows;
  for (const Row& row : timeline.rows)
    for (const TimelineSpan& s : row.spans)
      if (is_message(s.kind) && ++ends[key_of(row, s)] == 2)
        arrows.emplace(key_of(row, s), static_cast<int>(arrows.size()) + 1);
  return arrows;
}

}  // namespace

std::string render_timeline_trace(const Timeline& timeline) {
  const std::map<MessageKey, int> arrows = arrows_of(timeline);
  Json events = Json::array();
  for (const Row& row : timeline.rows) {
    events.push_back(metadata("process_name", row.rank, 0, "name", fmt::format("rank {}", row.rank)));
    events.push_back(metadata("process_sort_index", row.rank, 0, "sort_index", row.rank));
    std::map<Queue, int> threads;  // in the order of QueueKind: computation on top
    for (const TimelineSpan& s : row.spans) threads.try_emplace(s.queue, 0);
    int next = 0;
    for (auto& [queue, thread] : threads) {
      thread = next++;
      const std::string name = name_of(queue) + (queue.peer >= 0 && queue.lane == kGradients ? " gradients" : "");
      events.push_back(metadata("thread_name", row.rank, thread, "name", name));
      events.push_back(metadata("thread_sort_index", row.rank, thread, "sort_index", thread));
    }
    for (const TimelineSpan& s : row.spans) {
      const int thread = threads.at(s.queue);
      events.push_back(slice(row.rank, thread, s));
      if (!is_message(s.kind)) continue;
      if (const auto arrow = arrows.find(key_of(row, s)); arrow != arrows.end())
        events.push_back(arrow_end(row.rank, thread, s, arrow->second));
    }
  }
  Json out = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  if (!timeline.title.empty()) out["otherData"] = {{"title", timeline.title}};
  return out.dump() + "\n";
}

}  // namespace trireme::schedule
