// Memory for ranks that share a host: a memfd that peers open through /proc/<pid>/fd/<fd>, or anonymous memory
// for ranks that are threads. No name anywhere in the file system: it is gone with the last process that maps
// it, and Docker's 64 MB /dev/shm does not limit it. Pages are reserved up front and a request larger than the
// memory available is refused with the numbers, because the kernel's answer would be SIGBUS or the OOM killer.
//
// From 2 MiB on, huge pages are asked for: they double the speed at which memory is streamed (64 MiB read on a Zen 4
// under a hypervisor: 3.0 ms instead of 5.7). For a memfd the advice MADV_HUGEPAGE counts only where the system's
// shmem_enabled says so (mostly it says never); MADV_COLLAPSE (Linux 6.1) is an order and works regardless.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace trireme::comm {

class Mapping {
 public:
  enum class Pages { reserved, later };

  /// Zeroed memory behind a memfd. `claimed_bytes` is what the whole group asks for at the same time. Its pages are
  /// reserved now, on this process's NUMA node, or later, by the ranks that touch() them.
  /// Errors    CommError naming `what` and the numbers
  static std::shared_ptr<Mapping> create_shared(int64_t bytes, int64_t claimed_bytes, const std::string& what,
                                                Pages pages = Pages::reserved);

  /// Zeroed anonymous memory of this process; errors as create_shared.
  static std::shared_ptr<Mapping> create_private(int64_t bytes, int64_t claimed_bytes, const std::string& what);

  /// Maps what another process has created; null, with the reason in `why_not`, when that cannot be done.
  static std::shared_ptr<Mapping> open_peer(int pid, int fd, int64_t bytes, std::string& why_not);

  Mapping(const Mapping&) = delete;
  ~Mapping();

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  int fd() const { return fd_; }  ///< -1 for anonymous memory
  void close_fd();                ///< once all peers have mapped it

  /// Maps the pages of this range for this process, those that do not exist yet on its NUMA node, huge ones where
  /// they fit; says why not when there is no memory for them.
  std::string touch(int64_t begin, int64_t bytes);

  /// How many of its bytes this process sees through huge pages.
  int64_t huge_page_bytes() const;

 private:
  Mapping(void* data, int64_t bytes, int fd) : data_(data), bytes_(bytes), fd_(fd) {}
  void* data_;
  int64_t bytes_;
  int fd_;
};

}  // namespace trireme::comm
