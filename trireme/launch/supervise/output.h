// The ranks' output on its way to the screen and to the log files.
//
// Nothing here blocks. If a screen takes no more (a pager, a full pipe), a buffer fills. Then the ranks that write to
// it wait, as they would without a launcher, and the launcher goes on watching.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "trireme/base/files.h"

namespace trireme::launch {

/// The launcher's own stdout or stderr.
class Screen {
 public:
  explicit Screen(int fd) : fd_(fd) {}

  void write(std::string_view text);
  void flush();  ///< writes what can be written without blocking
  /// Waits for a slow reader: where the text `is_result` of what went well, until it has read all or a signal comes,
  /// and otherwise a few seconds.
  void flush_before_exit(int signal_fd, bool is_result);

  /// The errno of the write that lost text; 0: none, or the reader has gone and wants no more.
  int lost() const { return lost_; }

  int fd() const { return fd_; }
  bool waiting() const { return !pending_.empty(); }
  bool full() const { return pending_.size() > kMostPending; }

 private:
  static constexpr std::size_t kMostPending = 1 << 18;
  int fd_;
  bool broken_ = false;  // nothing can be written: the job continues, and the logs have everything
  int lost_ = 0;
  std::string pending_;
};

/// One rank's log file, opened for appending, because a resumed run has the same folder.
class RankLog {
 public:
  RankLog() = default;
  /// Errors    UsageError if the file cannot be opened
  explicit RankLog(std::filesystem::path path);

  /// Returns 0, or the errno of the first write that failed (disk full); then it writes no more.
  int write(std::string_view text);
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  base::FileDescriptor file_;
};

/// Makes `link` lead to `log`, which lies below the same folder. A link that is there already is replaced.
/// Errors    UsageError if a file has the name, or links cannot be made
void link_to_log(const std::filesystem::path& link, const std::filesystem::path& log);

/// One pipe from a rank. Its text is shown as it is, or line by line with a prefix, or not at all.
struct RankStream {
  base::FileDescriptor fd;      ///< read end, non-blocking; empty at the end of the pipe
  Screen* screen = nullptr;     ///< null: only logged
  std::string prefix = {};      ///< "[rank 1] "; empty: shown byte by byte
  std::string unfinished = {};  ///< the incomplete last line, if there is a prefix

  /// Reads what has come, shows it and returns it; empty if nothing has come.
  std::string read();
  void show(std::string_view text);
  void show_unfinished();
};

}  // namespace trireme::launch
