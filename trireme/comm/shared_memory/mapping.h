// Memory for ranks that share a host: a memfd that peers open through /proc/<pid>/fd/<fd>, or anonymous memory for
// ranks that are threads. A memfd has no name in the file system. So it disappears with the last process that maps it,
// and Docker's 64 MB /dev/shm does not limit it. Pages are reserved in advance. A request larger than the available
// memory is refused with the numbers, because otherwise SIGBUS or the OOM killer would end the process.
//
// From 2 MiB on, huge pages are requested: they double the speed of streaming through memory (64 MiB read on a Zen 4
// under a hypervisor: 3.0 ms instead of 5.7). For a memfd MADV_HUGEPAGE has an effect only if the system's
// shmem_enabled allows it (usually it does not); MADV_COLLAPSE (Linux 6.1) works regardless.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "trireme/base/files.h"

namespace trireme::comm {

class Mapping {
 public:
  enum class Pages { reserved, later };

  /// Zeroed memory of a memfd. `claimed_bytes` is the total that the whole group requests at this time. The pages are
  /// reserved now, on this process's NUMA node; or later (Pages::later), by the ranks that touch() them.
  /// Errors    CommError naming `what` and the numbers
  static std::shared_ptr<Mapping> create_shared(int64_t bytes, int64_t claimed_bytes, const std::string& what,
                                                Pages pages = Pages::reserved);

  /// Zeroed anonymous memory of this process; errors as create_shared.
  static std::shared_ptr<Mapping> create_private(int64_t bytes, int64_t claimed_bytes, const std::string& what);

  /// Maps another process's memfd; null, with the reason in `why_not`, if that fails.
  static std::shared_ptr<Mapping> open_peer(int pid, int fd, int64_t bytes, std::string& why_not);

  ~Mapping();

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }  ///< -1 for anonymous memory
  void close_fd() { fd_ = {}; }  ///< call it once all peers have mapped the memory

  /// Maps the pages of this range for this process. New pages are made on its NUMA node, as huge pages where possible.
  /// Returns an empty text, or the reason if there is no memory for them.
  std::string touch(int64_t begin, int64_t bytes);

 private:
  Mapping(void* data, int64_t bytes, base::FileDescriptor fd) : data_(data), bytes_(bytes), fd_(std::move(fd)) {}
  void* data_;
  int64_t bytes_;
  base::FileDescriptor fd_;
};

}  // namespace trireme::comm
