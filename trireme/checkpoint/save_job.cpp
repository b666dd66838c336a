#include "trireme/checkpoint/save_job.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <bit>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/checkpoint/disk.h"
#include "trireme/checkpoint/good.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Training has priority. On Linux each thread has its own niceness.
void lower_priority() { ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 10); }

/// Calls the request's progress function at most once a second, and not during short saves.
class Meter {
 public:
  Meter(const SaveRequest& request, const char* phase)
      : request_(request), phase_(phase), next_(Clock::now() + request.progress_after) {}

  void operator()(int64_t done_bytes, int64_t total_bytes) {
    if (!request_.progress || Clock::now() < next_) return;
    next_ = Clock::now() + std::min<std::chrono::milliseconds>(std::chrono::seconds(1), request_.progress_after);
    request_.progress({.phase = phase_, .done_bytes = done_bytes, .total_bytes = total_bytes});
  }

 private:
  const SaveRequest& request_;
  const char* phase_;
  Clock::time_point next_;
};

}  // namespace

SaveJob::SaveJob(SaveRequest request, comm::Communicator& world, Options options)
    : request_(std::move(request)), world_(world), options_(options) {
  begin_planning();
}

SaveJob::~SaveJob() { abandon(); }

/// Rank 0: the folder with all tensor files at full size.
void SaveJob::prepare() {
  const auto work = [&] {
    std::error_code failure;
    if (request_.create_out_dir) fs::create_directories(request_.out_dir, failure);
    if (failure) base::throw_file_error("make the folder", request_.out_dir, failure.value());
    if (!fs::is_directory(request_.out_dir))
      throw CheckpointError(
          fmt::format("cannot save step {}: the folder {}, which was there when the run began, is gone", request_.step,
                      request_.out_dir.string()),
          request_.out_dir.string());
    remove_leftovers(request_.out_dir);
    if (base::free_disk_bytes(request_.out_dir) < plan_.needed_bytes)
      throw_disk_full(request_.out_dir, plan_.needed_bytes, request_.elsewhere);
    temporary_ = std::make_unique<TemporaryFolder>(request_.out_dir, step_folder_name(request_.step));
    folder_ = temporary_->path();
    for (const FilePlan& file : plan_.files) create_file(folder_ / file.name, file.bytes);
  };
  translate_file_errors(request_.out_dir, plan_.needed_bytes, work, request_.elsewhere);
}

std::string SaveJob::folder_name() const {
  return request_.name.empty() ? step_folder_name(request_.step) : request_.name;
}

void SaveJob::begin(const char* name, std::function<void(const BytesDone&, std::stop_token)> work) {
  work_ = [this, name, work = std::move(work)](std::stop_token stop) {
    const Clock::time_point begin = Clock::now();
    const auto metered = [&] { work(Meter(request_, name), stop); };
    translate_file_errors(request_.out_dir, plan_.needed_bytes, metered, request_.elsewhere);
    worked_ += Clock::now() - begin;
  };
  failure_ = nullptr;
  if (!options_.background) return;
  idle_ = false;
  thread_ = std::jthread([this](std::stop_token stop) {
    lower_priority();
    try {
      std::exchange(work_, nullptr)(stop);
    } catch (...) {
      failure_ = std::current_exception();
    }
    idle_ = true;
  });
}

void SaveJob::advance() {
  check_invariant(!committed(), "a committed save has no next phase");
  try {
    agree(world_, [&] {
      if (thread_.joinable()) thread_.join();
      if (work_) std::exchange(work_, nullptr)({});
      if (failure_) std::rethrow_exception(failure_);
    });
    switch (phase_) {
      case Phase::planning:
        return begin_preparing();
      case Phase::preparing:
        return begin_writing();
      case Phase::writing:
        return begin_hashing();
      case Phase::hashing:
        return begin_publishing();
      default:
        phase_ = Phase::committed;
        result_.seconds = Clock::now() - started_;
        result_.work_seconds = worked_;
    }
  } catch (...) {
    abandon();
    throw;
  }
}

SaveResult SaveJob::finish() {
  while (!committed()) advance();
  return result_;
}

void SaveJob::begin_planning() {
  begin("plan", [this](const BytesDone&, std::stop_token) { plan_ = plan_save(request_); });
}

void SaveJob::begin_preparing() {
  agree_on_plan(request_, plan_, world_);
  result_ = {.path = request_.out_dir / folder_name(), .bytes = plan_.file_bytes()};
  phase_ = Phase::preparing;
  begin("prepare", [this](const BytesDone&, std::stop_token) {
    if (world_.rank() == 0) prepare();
  });
}

void SaveJob::begin_writing() {
  folder_ = request_.out_dir / broadcast_text(world_, folder_.filename().string(), 0);
  phase_ = Phase::writing;
  begin("write", [this](const BytesDone& done, std::stop_token stop) {
    extreme_ = find_extreme(request_.pieces, request_.model);
    hashes_ = write_pieces(plan_, folder_, request_.pieces, world_.rank() == 0, done, std::move(stop));
  });
}

/// Blocks that no rank filled alone are divided among the ranks in equal runs.
void SaveJob::begin_hashing() {
  std::vector<uint8_t> hashed(plan_.num_blocks());
  for (const BlockHash& h : hashes_) hashed[h.block] = 1;
  any_rank(world_, hashed);
  std::vector<int64_t> open;
  for (int64_t block = 0; block < plan_.num_blocks(); ++block)
    if (!hashed[block]) open.push_back(block);
  const auto share = [&](int rank) { return std::ssize(open) * rank / world_.size(); };
  std::vector<int64_t> mine(open.begin() + share(world_.rank()), open.begin() + share(world_.rank() + 1));
  phase_ = Phase::hashing;
  begin("checksum", [this, mine = std::move(mine)](const BytesDone& done, std::stop_token stop) {
    const std::vector<BlockHash> more = hash_blocks(plan_, folder_, mine, done, std::move(stop));
    hashes_.insert(hashes_.end(), more.begin(), more.end());
  });
}

/// On rank 0 the hash of every block.
std::vector<uint64_t> SaveJob::gather_hashes() {
  std::vector<int64_t> mine;
  for (const BlockHash& h : hashes_) mine.insert(mine.end(), {h.block, std::bit_cast<int64_t>(h.hash)});
  const int64_t count[] = {std::ssize(mine)};
  const std::vector<int64_t> counts = all_gather_numbers(world_, count, std::vector<int64_t>(world_.size(), 1));
  const std::vector<int64_t> all = gather_numbers(world_, mine, counts);
  if (world_.rank() != 0) return {};
  check_invariant(std::ssize(all) == 2 * plan_.num_blocks(), "every block is hashed by one rank");
  std::vector<uint64_t> hashes(plan_.num_blocks());
  for (size_t i = 0; i < all.size(); i += 2) hashes.at(all[i]) = std::bit_cast<uint64_t>(all[i + 1]);
  return hashes;
}

void SaveJob::begin_publishing() {
  std::vector<uint64_t> hashes = gather_hashes();
  const Extreme extreme = agree_on_extreme(extreme_, world_);
  result_.ruined = request_.ruined.empty() ? why_ruined(extreme) : request_.ruined;
  phase_ = Phase::publishing;
  begin("publish", [this, hashes = std::move(hashes)](const BytesDone&, std::stop_token) {
    if (world_.rank() == 0) publish(hashes);
  });
}

/// Rank 0: the small files and the manifest, then the rename; then older checkpoints may go.
void SaveJob::publish(const std::vector<uint64_t>& hashes) {
  Manifest manifest{.step = request_.step, .ruined = result_.ruined};
  for (size_t i = 0; i < plan_.files.size(); ++i)
    manifest.files[plan_.files[i].name] = {
        .bytes = plan_.files[i].bytes,
        .blocks = {hashes.begin() + plan_.first_block[i], hashes.begin() + plan_.first_block[i + 1]}};
  for (const auto& [name, text] : plan_.texts) {
    write_new_file(folder_ / name, text);
    manifest.files[name] = describe(text);
  }
  const std::string text = manifest_to_json(manifest);
  write_new_file(folder_ / kManifestName, text);
  result_.bytes += std::ssize(text);
  temporary_->publish(result_.path, request_.may_replace);
  try {  // the save has succeeded already, so trouble here is a warning
    temporary_.reset();
    result_.removed =
        keep_last_checkpoints(request_.out_dir, request_.step, request_.keep_last, request_.protected_paths);
  } catch (const std::exception& error) {
    result_.warnings.emplace_back(error.what());
  }
}

void SaveJob::abandon() {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
  work_ = nullptr;
  temporary_.reset();
}

SaveResult save_checkpoint(const SaveRequest& request, comm::Communicator& world) {
  return SaveJob(request, world, {.background = false}).finish();
}

}  // namespace trireme::checkpoint
