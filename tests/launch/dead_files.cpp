#include "tests/launch/dead_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace trireme::launch::testing {
namespace {

constexpr std::size_t kMostBytes = 1 << 17;  // of a request; the kernel wants room for the longest

// Agrees on a version, without which nobody's request comes.
void answer_init(int device, std::uint64_t request, std::uint32_t their_minor) {
  fuse_init_out body{};
  body.major = FUSE_KERNEL_VERSION;
  body.minor = std::min<std::uint32_t>(their_minor, FUSE_KERNEL_MINOR_VERSION);
  body.max_write = 4096;
  fuse_out_header head{static_cast<std::uint32_t>(sizeof head + sizeof body), 0, request};
  const std::array<iovec, 2> parts{iovec{&head, sizeof head}, iovec{&body, sizeof body}};
  if (writev(device, parts.data(), parts.size()) < 0) std::perror("a file system of the tests");
}

}  // namespace

DeadFiles::DeadFiles() {
  std::string pattern = std::filesystem::temp_directory_path() / "trireme-dead-XXXXXX";
  folder_ = mkdtemp(pattern.data());
  mount();
  if (why_not_.empty()) server_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
}

DeadFiles::~DeadFiles() {
  if (server_.joinable()) {
    server_.request_stop();
    server_.join();
  }
  if (mounted_) umount2(folder_.c_str(), MNT_FORCE | MNT_DETACH);  // the kernel ends all requests
  if (device_ >= 0) close(device_);
  std::error_code ignored;
  std::filesystem::remove(folder_, ignored);
}

void DeadFiles::mount() {
  device_ = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  // In a view of its own: nobody else stumbles over it, and it goes with the test's processes.
  const bool apart =
      device_ >= 0 && unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  const std::string options = fmt::format("fd={},rootmode=40000,user_id=0,group_id=0", device_);
  mounted_ = apart && ::mount("dead", folder_.c_str(), "fuse", 0, options.c_str()) == 0;
  if (!mounted_) why_not_ = fmt::format("no FUSE file system can be mounted: {}", std::strerror(errno));
}

void DeadFiles::serve(const std::stop_token& stop) const {
  alignas(fuse_in_header) static std::array<char, kMostBytes> request;
  while (!stop.stop_requested()) {
    pollfd ready{device_, POLLIN, 0};
    if (poll(&ready, 1, 20) <= 0) continue;
    if (read(device_, request.data(), request.size()) <= 0) continue;
    fuse_in_header head;
    std::memcpy(&head, request.data(), sizeof head);
    if (head.opcode != FUSE_INIT) continue;  // taken, so that whoever asked waits for its answer
    fuse_init_in body;
    std::memcpy(&body, request.data() + sizeof head, sizeof body);
    answer_init(device_, head.unique, body.minor);
  }
}

}  // namespace trireme::launch::testing
