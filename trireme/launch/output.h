// The ranks' output on its way to the screen and to the log files.
//
// Nothing here blocks: a screen that takes no more (a pager, a full pipe) first fills a buffer and then holds up the
// ranks that feed it, as it would without a launcher, while the launcher goes on watching.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace trireme::launch {

/// The launcher's own stdout or stderr.
class Screen {
 public:
  explicit Screen(int fd) : fd_(fd) {}

  void write(std::string_view text);
  void flush();  ///< passes on what can be passed on now
  void flush_before_exit();  ///< gives a slow reader a few seconds

  int fd() const { return fd_; }
  bool waiting() const { return !pending_.empty(); }
  bool full() const { return pending_.size() > kMostPending; }

 private:
  static constexpr std::size_t kMostPending = 1 << 18;
  int fd_;
  bool broken_ = false;  // the reader went away: the job goes on without it, the logs have everything
  std::string pending_;
};

/// One rank's log file; appended to, since a resumed run has the same folder.
class RankLog {
 public:
  RankLog() = default;
  /// Errors    UsageError if the file cannot be opened
  explicit RankLog(std::filesystem::path path);
  ~RankLog();
  RankLog(RankLog&& other) noexcept;
  RankLog& operator=(RankLog&& other) noexcept;

  /// 0 or, once, the errno with which the file takes no more (disk full): the caller tells the user.
  int write(std::string_view text);
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

/// One pipe from a rank. Shown as it is, or line by line after a prefix, or not at all.
struct RankStream {
  int fd = -1;               ///< read end, non-blocking; -1 when at its end
  Screen* screen = nullptr;  ///< null: only logged
  std::string prefix = {};   ///< "[rank 1] "; empty: shown byte by byte
  std::string unfinished = {};  ///< the line so far, where there is a prefix

  /// Shows `text` as this stream is shown.
  void show(std::string_view text);
  void show_unfinished();
};

}  // namespace trireme::launch
