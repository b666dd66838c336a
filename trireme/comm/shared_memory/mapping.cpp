#include "trireme/comm/shared_memory/mapping.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "trireme/base/cgroup.h"
#include "trireme/base/error.h"
#include "trireme/base/populate.h"
#include "trireme/base/round_up.h"

namespace trireme::comm {
namespace {
constexpr int64_t kHugePage = int64_t{2} << 20;

[[noreturn]] void refuse(const std::string& what, int64_t bytes, const std::string& reason) {
  throw CommError(fmt::format("[comm] {}: no {} bytes ({:.1f} MiB) of memory: {}", what, bytes,
                              static_cast<double>(bytes) / (1 << 20), reason),
                  {.operation = "allocate_shared", .group = what});
}

void check_available(int64_t bytes, int64_t claimed, const std::string& what) {
  const int64_t available = base::available_memory().bytes;
  if (claimed > available)
    refuse(what, bytes,
           fmt::format("the ranks of this host ask for {:.1f} MiB together and {:.1f} MiB are available; use fewer "
                       "ranks per host, a smaller model or more sharding",
                       static_cast<double>(claimed) / (1 << 20), static_cast<double>(available) / (1 << 20)));
}

constexpr int kCollapse = 25;  // MADV_COLLAPSE, which the C library's headers may not have yet

// Large memory begins on a huge page's boundary, because otherwise the kernel cannot use huge pages.
void* map(int64_t bytes, int flags, int fd) {
  if (bytes < kHugePage) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    return data == MAP_FAILED ? nullptr : data;
  }
  const int64_t whole = base::round_up(bytes, 4096);
  void* reserved = mmap(nullptr, whole + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  const auto first = reinterpret_cast<int64_t>(reserved), begin = base::round_up(first, kHugePage);
  void* data = mmap(reinterpret_cast<void*>(begin), bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);
  if (begin > first) munmap(reserved, begin - first);
  if (begin < first + kHugePage) munmap(reinterpret_cast<void*>(begin + whole), first + kHugePage - begin);
  if (data == MAP_FAILED) return nullptr;
  madvise(data, bytes, MADV_HUGEPAGE);  // only a hint: a failure does no harm
  return data;
}
}  // namespace

std::shared_ptr<Mapping> Mapping::create_shared(int64_t bytes, int64_t claimed_bytes, const std::string& what,
                                                Pages pages) {
  check_available(bytes, claimed_bytes, what);
  base::FileDescriptor fd(memfd_create("trireme", MFD_CLOEXEC));
  // The pages are reserved now. Otherwise a lack of memory would be SIGBUS at the first touch.
  bool has_pages = fd.get() >= 0 && ftruncate(fd.get(), bytes) == 0;
  if (has_pages && pages != Pages::later) {
    errno = base::reserve_bytes(fd.get(), bytes);
    has_pages = errno == 0;
  }
  void* data = has_pages ? map(std::max<int64_t>(bytes, 1), MAP_SHARED, fd.get()) : nullptr;
  if (!data) refuse(what, bytes, std::strerror(errno));
  return std::shared_ptr<Mapping>(new Mapping(data, std::max<int64_t>(bytes, 1), std::move(fd)));
}

std::shared_ptr<Mapping> Mapping::create_private(int64_t bytes, int64_t claimed_bytes, const std::string& what) {
  check_available(bytes, claimed_bytes, what);
  void* data = map(std::max<int64_t>(bytes, 1), MAP_PRIVATE | MAP_ANONYMOUS, -1);
  if (!data) refuse(what, bytes, std::strerror(errno));
  return std::shared_ptr<Mapping>(new Mapping(data, std::max<int64_t>(bytes, 1), {}));
}

std::shared_ptr<Mapping> Mapping::open_peer(int pid, int fd, int64_t bytes, std::string& why_not) {
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, fd);
  const base::FileDescriptor mine(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (mine.get() < 0) {
    why_not = fmt::format("cannot open {}: {}", path, std::strerror(errno));
    return nullptr;
  }
  struct stat info{};
  const bool sized = fstat(mine.get(), &info) == 0 && info.st_size >= bytes;
  void* data = sized ? map(std::max<int64_t>(bytes, 1), MAP_SHARED, mine.get()) : nullptr;
  if (!data) {
    why_not = sized ? fmt::format("cannot map {}: {}", path, std::strerror(errno))
                    : fmt::format("{} is not the segment that was announced ({} bytes instead of {})", path,
                                  static_cast<int64_t>(info.st_size), bytes);
    return nullptr;
  }
  return std::shared_ptr<Mapping>(new Mapping(data, std::max<int64_t>(bytes, 1), {}));
}

Mapping::~Mapping() { munmap(data_, bytes_); }

std::string Mapping::touch(int64_t begin, int64_t bytes) {
  if (bytes <= 0) return "";
  auto* from = static_cast<std::byte*>(data_) + begin / 4096 * 4096;
  auto* to = static_cast<std::byte*>(data_) + begin + bytes;
  if (const int error = base::populate(from, static_cast<size_t>(to - from)); error != 0)
    return fmt::format("{} bytes cannot be had: {}", bytes, std::strerror(error));
  // Only huge pages inside the range: the others also hold a neighbour's bytes.
  const int64_t first = base::round_up(begin, kHugePage), last = (begin + bytes) / kHugePage * kHugePage;
  if (last > first) madvise(static_cast<std::byte*>(data_) + first, last - first, kCollapse);
  return "";
}

}  // namespace trireme::comm
