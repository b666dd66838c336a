#include "trireme/comm/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::comm {

namespace {

const char* name(FlightRecorder::State state) {
  switch (state) {
    case FlightRecorder::State::started:
      return "started";
    case FlightRecorder::State::finished:
      return "finished";
    case FlightRecorder::State::failed:
      return "failed";
  }
  return "";
}

int64_t microseconds(std::chrono::system_clock::time_point t) {
  return std::chrono::duration_cast<std::chrono::microseconds>(t.time_since_epoch()).count();
}

}  // namespace

FlightRecorder::FlightRecorder(int capacity) : ring_(std::max(capacity, 1)) {}

uint64_t FlightRecorder::start(const std::string& group, uint64_t sequence, Operation operation, at::ScalarType dtype,
                               int64_t elements) {
  const auto now = std::chrono::system_clock::now();
  std::lock_guard lock(mutex_);
  Entry& entry = ring_[++last_id_ % ring_.size()];
  entry.id = last_id_;
  entry.sequence = sequence;
  entry.group = group;  // reuses the entry's storage: no allocation once the ring is full
  entry.operation = operation;
  entry.dtype = dtype;
  entry.elements = elements;
  entry.started = now;
  entry.finished = {};
  entry.state = State::started;
  return last_id_;
}

void FlightRecorder::finish(uint64_t id, State state) {
  const auto now = std::chrono::system_clock::now();
  std::lock_guard lock(mutex_);
  Entry& entry = ring_[id % ring_.size()];
  if (entry.id != id) return;
  entry.finished = now;
  entry.state = state;
}

std::vector<FlightRecorder::Entry> FlightRecorder::entries() const {
  std::lock_guard lock(mutex_);
  std::vector<Entry> held;
  for (const Entry& entry : ring_)
    if (entry.id != 0) held.push_back(entry);
  std::ranges::sort(held, {}, &Entry::id);
  return held;
}

void FlightRecorder::dump(const std::string& path) const {
  std::ofstream file(path, std::ios::trunc);
  for (const Entry& e : entries()) {
    nlohmann::ordered_json line = {{"id", e.id},
                                   {"sequence", e.sequence},
                                   {"group", e.group},
                                   {"operation", to_string(e.operation)},
                                   {"dtype", dtype_name(e.dtype)},
                                   {"elements", e.elements},
                                   {"started_us", microseconds(e.started)},
                                   {"finished_us", nullptr},
                                   {"state", name(e.state)}};
    if (e.state != State::started) line["finished_us"] = microseconds(e.finished);
    file << line.dump() << '\n';
  }
  file.close();
  if (!file)
    throw UsageError(
        fmt::format("[comm] the flight recorder cannot write {}; check that its folder exists and has "
                    "room",
                    path));
}

}  // namespace trireme::comm
