// Preloaded, it makes each page of the file SLOW_LOADER arrive ten milliseconds after its first use, as from storage
// that is far away and of which the kernel says nothing. The file is mapped as empty memory that threads of this
// library fill (userfaultfd).
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr uint64_t kPage = 4096;
constexpr int kPagesAtOnce = 8;

struct Mapping {
  int faults, file;
  uint64_t begin;
};

void* bring_pages(void* argument) {
  const Mapping& m = *static_cast<Mapping*>(argument);
  for (;;) {
    pollfd ready{m.faults, POLLIN, 0};
    uffd_msg message{};
    if (poll(&ready, 1, -1) < 0 || read(m.faults, &message, sizeof message) != sizeof message) continue;
    if (message.event != UFFD_EVENT_PAGEFAULT) continue;
    const uint64_t page = message.arg.pagefault.address / kPage * kPage;
    alignas(kPage) char bytes[kPage] = {};
    usleep(10'000);
    if (pread(m.file, bytes, kPage, static_cast<off_t>(page - m.begin)) < 0) std::abort();
    uffdio_copy copy{.dst = page, .src = reinterpret_cast<uint64_t>(bytes), .len = kPage, .mode = 0, .copy = 0};
    if (ioctl(m.faults, UFFDIO_COPY, &copy) == 0) continue;
    uffdio_range both{.start = page, .len = kPage};  // another thread has brought it
    ioctl(m.faults, UFFDIO_WAKE, &both);
  }
  return nullptr;
}

bool is_slow(int file) {
  const char* slow = std::getenv("SLOW_LOADER");
  struct stat mine{}, its{};
  return slow != nullptr && file >= 0 && stat(slow, &its) == 0 && fstat(file, &mine) == 0 &&
         mine.st_ino == its.st_ino && mine.st_dev == its.st_dev;
}

void* map_as_the_kernel_does(void* address, size_t length, int protection, int flags, int file, off_t offset) {
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, length, protection, flags, file, offset));
}

}  // namespace

extern "C" void* mmap(void* address, size_t length, int protection, int flags, int file, off_t offset) {
  if (offset != 0 || !is_slow(file)) return map_as_the_kernel_does(address, length, protection, flags, file, offset);
  const int faults = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
  uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
  const size_t pages = (length + kPage - 1) / kPage * kPage;
  void* memory = map_as_the_kernel_does(nullptr, pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto begin = reinterpret_cast<uint64_t>(memory);
  uffdio_register all{.range = {.start = begin, .len = pages}, .mode = UFFDIO_REGISTER_MODE_MISSING, .ioctls = 0};
  if (faults < 0 || memory == MAP_FAILED || ioctl(faults, UFFDIO_API, &api) != 0 ||
      ioctl(faults, UFFDIO_REGISTER, &all) != 0) {
    std::perror("slow_loader");
    std::abort();
  }
  auto* mapping = new Mapping{faults, dup(file), begin};  // as long as the process
  for (int i = 0; i < kPagesAtOnce; ++i) {
    pthread_t thread{};
    pthread_create(&thread, nullptr, bring_pages, mapping);
  }
  return memory;
}

extern "C" void* mmap64(void* address, size_t length, int protection, int flags, int file, off_t offset) {
  return mmap(address, length, protection, flags, file, offset);
}
