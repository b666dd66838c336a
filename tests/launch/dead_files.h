// A file system that never answers, as one of a server that is gone: whoever asks it for anything waits in the kernel,
// where no signal reaches it, SIGKILL included.
#pragma once

#include <filesystem>
#include <string>
#include <thread>

namespace trireme::launch::testing {

class DeadFiles {
 public:
  /// Mounts one by FUSE, for this process and those that it starts.
  DeadFiles();
  ~DeadFiles();  ///< lets everybody go who waits
  DeadFiles(const DeadFiles&) = delete;
  DeadFiles& operator=(const DeadFiles&) = delete;

  /// Why there is none: it takes root and /dev/fuse. Empty where there is one.
  const std::string& why_not() const { return why_not_; }
  /// A file in it. Who asks for it waits in state S until a signal comes, and in state D from then on.
  std::string file() const { return folder_ / "file"; }

 private:
  void mount();
  void serve(const std::stop_token& stop) const;

  std::filesystem::path folder_;
  std::string why_not_;
  int device_ = -1;
  bool mounted_ = false;
  std::jthread server_;
};

}  // namespace trireme::launch::testing
