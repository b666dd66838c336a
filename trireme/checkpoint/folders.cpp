#include "trireme/checkpoint/folders.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <random>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/text.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kTemporaryPrefix = ".tmp-";
constexpr std::string_view kDeletedPrefix = "deleted-";
constexpr int kMostTries = 10;

std::optional<int64_t> parse_step(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  const char* begin = name.data() + kStepPrefix.size();
  const char* end = name.data() + name.size();
  int64_t step = 0;
  const auto [stop, error] = std::from_chars(begin, end, step);
  if (begin == end || *begin == '-' || error != std::errc() || stop != end) return std::nullopt;
  return step;
}

fs::path temporary_path(const fs::path& out_dir, const std::string& label) {
  std::random_device random;
  return out_dir / fmt::format("{}{}-{:08x}{:08x}", kTemporaryPrefix, label, random(), random());
}

/// True for the names that temporary_path makes; other `.tmp-` folders belong to other programs.
bool is_temporary_name(std::string_view name) {
  constexpr size_t kNonceDigits = 16;
  if (!name.starts_with(kTemporaryPrefix)) return false;
  name.remove_prefix(kTemporaryPrefix.size());
  if (name.size() <= kNonceDigits || name[name.size() - kNonceDigits - 1] != '-') return false;
  if (name.substr(name.size() - kNonceDigits).find_first_not_of("0123456789abcdef") != name.npos) return false;
  const std::string_view label = name.substr(0, name.size() - kNonceDigits - 1);
  return label.starts_with(kStepPrefix) || label.starts_with(kDeletedPrefix) || label == kConvertLabel;
}

void rename_folder(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    base::throw_file_error(fmt::format("rename {} to", from.string()), to, errno);
}

}  // namespace

std::string step_folder_name(int64_t step) { return fmt::format("{}{:08d}", kStepPrefix, step); }

std::vector<StepFolder> list_step_folders(const fs::path& out_dir) {
  std::vector<StepFolder> folders;
  std::error_code error;
  for (fs::directory_iterator entry(out_dir, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (!entry->is_directory(ignored)) continue;
    if (const auto step = parse_step(entry->path().filename().string())) folders.push_back({*step, entry->path()});
  }
  std::sort(folders.begin(), folders.end(), [](const StepFolder& a, const StepFolder& b) { return a.step > b.step; });
  return folders;
}

std::optional<int64_t> step_of(const fs::path& folder) {
  const fs::path named = folder.has_filename() ? folder : folder.parent_path();  // "out/step-1/" is out/step-1
  return parse_step(named.filename().string());
}

bool remove_leftovers(const fs::path& out_dir) {
  bool all = true;
  std::vector<fs::path> candidates;
  std::error_code unreadable;
  for (fs::directory_iterator entry(out_dir, unreadable), end; !unreadable && entry != end; entry.increment(unreadable))
    if (is_temporary_name(entry->path().filename().string())) candidates.push_back(entry->path());
  for (const fs::path& candidate : candidates) {
    const int handle = ::open(candidate.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (handle < 0) continue;
    std::error_code ignored;
    if (::flock(handle, LOCK_EX | LOCK_NB) == 0)
      fs::remove_all(candidate, ignored);
    else
      all = false;
    ::close(handle);
  }
  return all;
}

void require_removable(const fs::path& folder) {
  if (std::error_code ignored; fs::is_symlink(folder, ignored)) return;  // the link goes, and not what it leads to
  const auto check = [&](const fs::path& inside) {
    if (::access(inside.c_str(), W_OK | X_OK) != 0 && errno == EACCES)
      throw CheckpointError(fmt::format("cannot delete {}: it is write-protected; to let it go: chmod -R u+w {}",
                                        folder.string(), base::shell_quoted(folder.string())),
                            folder.string());
  };
  check(folder);
  std::error_code unreadable;
  for (fs::recursive_directory_iterator entry(folder, unreadable), end; !unreadable && entry != end;
       entry.increment(unreadable))
    if (std::error_code ignored; entry->is_directory(ignored) && !entry->is_symlink(ignored)) check(entry->path());
}

void remove_checkpoint(const fs::path& folder) {
  require_removable(folder);
  // Locked before it has its name of a leftover: a save that begins meanwhile would remove it, too. Without locks on
  // this file system, or without the folder, the rename says what is wrong.
  const base::FileDescriptor lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock.get() >= 0) ::flock(lock.get(), LOCK_EX | LOCK_NB);
  const fs::path away =
      temporary_path(base::parent_of(folder), std::string(kDeletedPrefix) + folder.filename().string());
  rename_folder(folder, away);
  base::fsync_directory(base::parent_of(folder));
  std::error_code error;
  fs::remove_all(away, error);
  if (error) throw CheckpointError(fmt::format("cannot delete {}: {}", away.string(), error.message()), away.string());
}

TemporaryFolder::TemporaryFolder(const fs::path& out_dir, const std::string& label)
    : path_(temporary_path(out_dir, label)) {
  // Before it is locked, another process may take it for a leftover and remove it: then another one is made.
  for (int tries = 0;; path_ = temporary_path(out_dir, label)) {
    std::error_code error;
    if (!fs::create_directory(path_, error)) base::throw_file_error("create", path_, error ? error.value() : EEXIST);
    lock_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // Without locks on this file system, leftovers stay until removed by hand.
    const bool taken = lock_ >= 0 && ::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if ((!taken && fs::exists(path_, error)) || ++tries == kMostTries) return;
    if (lock_ >= 0) ::close(lock_);
  }
}

TemporaryFolder::~TemporaryFolder() {
  if (!path_.empty()) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  if (lock_ >= 0) ::close(lock_);
}

void TemporaryFolder::publish(const fs::path& target, bool may_replace) {
  base::fsync_directory(path_);
  if (!may_replace) {
    base::rename_to_new(path_, target);
    path_.clear();
  } else if (!fs::exists(target)) {
    rename_folder(path_, target);
    path_.clear();
  } else if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) != 0) {
    // The file system cannot exchange two names: for a moment neither folder exists, but older checkpoints do.
    if (errno != EINVAL && errno != ENOSYS) base::throw_file_error("replace", target, errno);
    remove_checkpoint(target);
    rename_folder(path_, target);
    path_.clear();
  }
  base::fsync_directory(base::parent_of(target));
}

}  // namespace trireme::checkpoint
