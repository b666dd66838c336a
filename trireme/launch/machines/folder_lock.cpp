#include "trireme/launch/machines/folder_lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/log.h"
#include "trireme/base/process.h"
#include "trireme/base/text.h"
#include "trireme/launch/identity/network.h"
#include "trireme/launch/supervise/stop_signal.h"

namespace trireme::launch {
namespace {
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kLookAgain = 20ms;
constexpr auto kTellAgain = 30s;
constexpr auto kLastRank = 20s;  // the wait for the last rank of a job whose launcher is gone
constexpr auto kTellFirst = 1s;
constexpr auto kNaming = 3s;  // the longest that a holder has no name in the file: after taking the lock, or at its end

LockHolder describe_self(const LockOptions& options) {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return {.name = job_name(std::getenv),
          .job_id = options.job_id,
          .command = options.command,
          .host = host_name(),
          .machine = base::this_host(),
          .pid = ::getpid(),
          .start_ticks = base::process_start_ticks(::getpid()).value_or(0),
          .started = fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(now))};
}

std::string to_json(const LockHolder& h) {
  return base::json_text(nlohmann::ordered_json{{"scheduler", h.name.scheduler},
                                                {"id", h.name.id},
                                                {"name", h.name.name},
                                                {"job", h.job_id},
                                                {"command", h.command},
                                                {"host", h.host},
                                                {"machine", h.machine},
                                                {"pid", h.pid},
                                                {"start_ticks", h.start_ticks},
                                                {"started", h.started}}) +
         "\n";
}

// Writes in place, because a new file would have another lock. On a full disk only the name is missing.
void write_holder(const base::FileDescriptor& file, const std::string& text, const fs::path& path) try {
  if (::ftruncate(file.get(), 0) != 0) return;
  base::write_at(file, std::as_bytes(std::span(text)), 0, path);
} catch (const base::FileError&) {
}

bool is_still(const base::FileDescriptor& file, const fs::path& path) {
  struct stat mine{}, there{};
  return ::fstat(file.get(), &mine) == 0 && ::stat(path.c_str(), &there) == 0 && mine.st_dev == there.st_dev &&
         mine.st_ino == there.st_ino;
}

// Whether the holder is a process of this machine that has ended.
bool is_gone(const LockHolder& holder) {
  return holder.machine == base::this_host() && base::is_gone(holder.pid, holder.start_ticks);
}

void refuse(const fs::path& folder, const std::optional<LockHolder>& holder, const std::string& waited) {
  throw UsageError(
      fmt::format("{} is in use by another job{}{}; two jobs in one folder would delete each other's checkpoints: wait "
                  "until it has ended, or choose another --out_dir",
                  folder.string(), holder ? ": " + holder->text() : "", waited));
}
}  // namespace

std::string LockHolder::text() const {
  return fmt::format("{}{}{}, process {} on {} since {}", name.text(), name.scheduler.empty() ? "" : ", ", command, pid,
                     host, started);
}

std::optional<LockHolder> lock_holder(const fs::path& folder) try {
  const auto json = base::parse_json_if_sound(base::read_file(folder / kLockName));
  if (!json.is_object()) return std::nullopt;
  return LockHolder{.name = {json.at("scheduler"), json.at("id"), json.at("name")},
                    .job_id = json.at("job"),
                    .command = json.at("command"),
                    .host = json.at("host"),
                    .machine = json.at("machine"),
                    .pid = json.at("pid"),
                    .start_ticks = json.at("start_ticks"),
                    .started = json.at("started")};
} catch (const base::FileError&) {
  return std::nullopt;
} catch (const nlohmann::json::exception&) {  // written by another version
  return std::nullopt;
}

FolderLock::FolderLock(const LockOptions& options) : path_(options.folder / kLockName) {
  const JobName mine = job_name(std::getenv);
  const Clock::time_point start = Clock::now();
  std::optional<Clock::time_point> told, nameless;
  while (!take(options)) {
    const auto holder = lock_holder(options.folder);
    const auto now = Clock::now();
    if (holder)
      nameless.reset();
    else if (!nameless)
      nameless = now;  // the holder has just begun, or is just ending
    const bool is_own =
        options.waits_for_anybody || (options.waits_for_its_own && holder && is_same_job(mine, holder->name));
    const bool too_long = nameless           ? now - *nameless > kNaming
                          : is_own           ? now - start > options.patience
                          : is_gone(*holder) ? now - start > kLastRank
                                             : true;
    if (too_long)
      refuse(options.folder, holder,
             is_own ? fmt::format(", which has not ended within {}", base::human_duration(options.patience)) : "");
    if (stop_requested())
      throw Stopped(
          fmt::format("stopped while waiting for the job that holds {}; nothing was begun", options.folder.string()));
    if (holder && now - start > kTellFirst && (!told || now - *told > kTellAgain)) {
      told = now;
      base::info("waiting for the end of the job that holds {}: {}{}", options.folder.string(), holder->text(),
                 is_own ? fmt::format("; at most {}", base::human_duration(options.patience)) : "");
    }
    std::this_thread::sleep_for(kLookAgain);
  }
}

FolderLock::~FolderLock() {
  if (file_.get() < 0) return;
  if (made_.empty()) {
    if (::ftruncate(file_.get(), 0) != 0) return;  // then the file names a process that is gone
    return;
  }
  ::unlink(path_.c_str());
  for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) ::rmdir(folder->c_str());
}

void FolderLock::make_folder(const fs::path& folder) {
  std::error_code error;
  for (fs::path missing = folder; !missing.empty() && !fs::exists(missing, error); missing = missing.parent_path())
    made_.insert(made_.begin(), missing);
  fs::create_directories(folder, error);
  if (error) base::throw_file_error("make the folder", folder, error.value());
}

bool FolderLock::take(const LockOptions& options) {
  while (true) {
    make_folder(options.folder);  // the other job may remove it at its end
    base::FileDescriptor file = base::open_file(path_, O_RDWR | O_CREAT | O_NOFOLLOW);
    int code = 0;
    do {
      code = ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    } while (code == EINTR);
    if (code == EWOULDBLOCK) return false;
    if (code == 0 && !is_still(file, path_)) continue;  // the file was removed meanwhile, with its folder
    if (code != 0)
      base::warn("the file system of {} has no locks ({}): nothing keeps a second job out of the folder",
                 options.folder.string(), std::strerror(code));
    file_ = std::move(file);
    write_holder(file_, to_json(describe_self(options)), path_);
    return true;
  }
}

bool inherits_folder_lock() {
  const char* text = std::getenv("TRIREME_LOCK_FD");
  int fd = -1;
  if (text == nullptr || std::from_chars(text, text + std::strlen(text), fd).ec != std::errc()) return false;
  return ::fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

void wait_for_rank_0_to_lock(const fs::path& folder, const std::string& job_id, std::chrono::milliseconds patience) {
  if (job_id.empty()) return;
  for (const auto start = Clock::now();; std::this_thread::sleep_for(kLookAgain)) {
    if (const auto holder = lock_holder(folder); holder && holder->job_id == job_id) return;
    if (stop_requested()) throw Stopped(fmt::format("stopped while waiting for rank 0 in {}", folder.string()));
    if (Clock::now() - start > patience)
      throw Error(
          fmt::format("rank 0 has not come: after {} its job does not hold {}; all ranks need the same --out_dir on a "
                      "file system that all hosts share",
                      base::human_duration(patience), folder.string()));
  }
}

void refuse_while_in_use(const fs::path& folder) {
  const fs::path path = folder / kLockName;
  const base::FileDescriptor file(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (file.get() < 0 || ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  refuse(folder, lock_holder(folder), "");
}

}  // namespace trireme::launch
