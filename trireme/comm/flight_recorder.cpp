#include "trireme/comm/flight_recorder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "trireme/base/checksum.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/process.h"
#include "trireme/comm/group.h"

namespace trireme::comm {

using base::FlightGroup;
using base::FlightHeader;
using base::FlightRecord;

namespace {
void fill_header(FlightHeader& h, int capacity, const FlightRecorder::Owner& owner) {
  std::memcpy(h.magic, base::kFlightMagic, sizeof h.magic);
  h.header_bytes = sizeof(FlightHeader);
  h.record_bytes = sizeof(FlightRecord);
  h.capacity = capacity;
  h.global_rank = owner.global_rank;
  h.world_size = owner.world_size;
  h.pid = getpid();
  h.process_start = base::process_start_ticks(getpid()).value_or(0);
  h.opened_us = h.since_us = base::now_us();
  h.timeout_ms = owner.timeout.count();
  h.host = base::this_host();
  // Jobs are only compared: a long id stands there as its hash.
  const bool is_long = owner.job.size() >= sizeof h.job.text;
  h.job = is_long ? base::checksum_text(base::hash_text(owner.job)) : owner.job;
}

int64_t bytes_of(at::ScalarType dtype, int64_t elements) {
  return dtype == at::ScalarType::Undefined ? 0 : elements * static_cast<int64_t>(c10::elementSize(dtype));
}
}  // namespace

FlightRecorder::FlightRecorder(int capacity) {
  keep_in_memory(std::max(capacity, 1));
  fill_header(header(), std::max(capacity, 1), {});
}

void FlightRecorder::keep_in_memory(int capacity) {
  own_ = std::make_unique<std::byte[]>(static_cast<size_t>(base::flight_file_bytes(capacity)));
  memory_ = own_.get();
}

FlightRecorder::FlightRecorder(const std::filesystem::path& folder, const Owner& owner) {
  try {
    if (folder.has_parent_path()) std::filesystem::create_directories(folder.parent_path());
    base::make_real_folder(folder);
    open(base::flight_file(folder, owner.global_rank));
  } catch (const std::exception& error) {
    base::warn("the flight recorder is kept in memory only, so a hang is told without it: {}", error.what());
    keep_in_memory(base::kFlightRecords);
  }
  fill_header(header(), base::kFlightRecords, owner);
}

std::shared_ptr<FlightRecorder> FlightRecorder::of_environment(Owner owner, const std::filesystem::path& otherwise) {
  const char *named = std::getenv("TRIREME_FLIGHT_FOLDER"), *job = std::getenv("TRIREME_JOB_ID");
  const std::filesystem::path folder = named == nullptr ? otherwise : std::filesystem::path(named);
  if (folder.empty() || owner.world_size == 1) return std::make_shared<FlightRecorder>();
  if (owner.job.empty() && job != nullptr) owner.job = job;
  return std::make_shared<FlightRecorder>(folder, owner);
}

FlightRecorder::~FlightRecorder() {
  if (mapped_bytes_ > 0) munmap(memory_, static_cast<size_t>(mapped_bytes_));
}

// Makes a new file instead of truncating an old one, because a rank of an earlier attempt may still have the old file
// mapped. All blocks are allocated first: a write to a mapping on a full disk would be SIGBUS, not an error.
void FlightRecorder::open(const std::filesystem::path& path) {
  std::filesystem::remove(path);
  const base::FileDescriptor file = base::open_file(path, O_RDWR | O_CREAT | O_EXCL);
  const int64_t bytes = base::flight_file_bytes(base::kFlightRecords);
  if (const int error = base::reserve_bytes(file.get(), bytes); error != 0)
    base::throw_file_error("make room in", path, error);
  void* memory =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (memory == MAP_FAILED) base::throw_file_error("map", path, errno);
  memory_ = memory;
  mapped_bytes_ = bytes;
}

FlightRecord& FlightRecorder::record(uint64_t id) const {
  auto* first = reinterpret_cast<FlightRecord*>(static_cast<std::byte*>(memory_) + sizeof(FlightHeader));
  return first[id % static_cast<uint64_t>(header().capacity)];
}

void FlightRecorder::join(const Group& group) {
  std::lock_guard lock(mutex_);
  FlightHeader& h = header();
  if (h.num_groups == base::kFlightGroups) return;
  FlightGroup& g = h.groups[h.num_groups];
  g.name = group.name;
  g.key = hash_of(group);
  g.size = group.size;
  g.rank = group.rank;
  g.num_calls = 0;
  for (int k = 0; k < std::min(group.size, base::kFlightMembers); ++k) g.members[k] = group.global_rank(k);
  std::atomic_ref(h.num_groups).store(h.num_groups + 1, std::memory_order_release);  // after the group's fields
}

void FlightRecorder::set_phase(std::string_view phase) {
  header().phase = phase;
  header().since_us = base::now_us();
}

void FlightRecorder::set_step(int64_t step) { header().step = step; }

void FlightRecorder::set_action(const ActionLabel& label) {
  action_ = &label;
  header().action = label.text;
  header().since_us = base::now_us();
}

FlightRecorder::Actions::Actions(FlightRecorder* recorder)
    : recorder_(recorder), before_(recorder ? recorder->action_ : nullptr), exceptions_(std::uncaught_exceptions()) {
  if (recorder_) recorder_->action_ = nullptr;
}

FlightRecorder::Actions::~Actions() {
  if (!recorder_) return;
  recorder_->action_ = before_;
  if (std::uncaught_exceptions() > exceptions_) return;
  recorder_->header().action = before_ ? std::string_view(before_->text) : std::string_view();
  recorder_->header().since_us = base::now_us();
}

uint64_t FlightRecorder::start(const std::string& group, uint64_t sequence, Operation operation, at::ScalarType dtype,
                               int64_t elements, int peer) {
  const int64_t now = base::now_us();
  std::lock_guard lock(mutex_);
  FlightHeader& h = header();
  const uint64_t id = h.last_id + 1;
  FlightRecord& r = record(id);
  // Readers accept a record only if its id is the same before and after they copy it (base/flight_file.cpp). So they
  // must not see new fields under the old id, or the new id before all new fields.
  std::atomic_ref(r.id).store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  r.sequence = sequence;
  r.group = group;
  r.operation_code = static_cast<uint8_t>(operation);
  r.operation = to_string(operation);
  r.dtype_code = static_cast<uint8_t>(dtype);
  r.dtype = dtype == at::ScalarType::Undefined ? std::string_view() : dtype_name(dtype);
  r.elements = elements;
  r.bytes = bytes_of(dtype, elements);
  r.step = h.step;
  r.peer = peer;
  r.action = action_ ? std::string_view(action_->text) : std::string_view();
  r.started_us = now;
  r.finished_us = 0;
  r.state = State::started;
  std::atomic_ref(r.id).store(id, std::memory_order_release);
  h.last_id = id;
  if (peer < 0)
    for (FlightGroup& g : std::span(h.groups, static_cast<size_t>(h.num_groups)))
      if (g.name.view() == group) g.num_calls = sequence + 1;
  return id;
}

void FlightRecorder::finish(uint64_t id, State state) {
  const int64_t now = base::now_us();
  std::lock_guard lock(mutex_);
  FlightRecord& r = record(id);
  if (r.id != id) return;
  r.finished_us = now;
  r.state = state;
}

FlightRecorder::Waiting::Waiting(FlightRecorder* recorder, uint64_t id)
    : recorder_(recorder), exceptions_(std::uncaught_exceptions()) {
  if (!recorder_ || recorder_->header().gave_up_us != 0) return;
  recorder_->header().waiting_since_us = base::now_us();
  recorder_->header().waiting_id = id;
}

void FlightRecorder::Waiting::still() const {
  if (recorder_) recorder_->header().seen_us = base::now_us();
}

// After an exception the record stays, so that readers see which call the rank gave up on.
FlightRecorder::Waiting::~Waiting() {
  if (!recorder_ || recorder_->header().gave_up_us != 0) return;
  if (std::uncaught_exceptions() > exceptions_)
    recorder_->header().gave_up_us = base::now_us();
  else
    recorder_->header().waiting_id = 0;
}

std::string FlightRecorder::where(uint64_t id) const {
  std::lock_guard lock(mutex_);
  const FlightRecord& r = record(id);
  if (id == 0 || r.id != id || r.action.view().empty()) return "";
  return fmt::format(" in {} of step {}", r.action.view(), r.step);
}

std::vector<FlightRecord> FlightRecorder::records() const {
  return base::read_flight(memory_, base::flight_file_bytes(header().capacity), "the recorder").records;
}

}  // namespace trireme::comm
