#include "trireme/base/mapped_ranges.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string_view>

#include "trireme/base/files.h"

namespace trireme::base {
namespace {

constexpr std::size_t kMostMappings = 256, kMostPathBytes = 512;

struct Mapping {
  std::atomic<std::uintptr_t> begin{0};  ///< 0: free; written last, so that the handler sees the others
  std::atomic<std::size_t> bytes{0};
  std::array<char, kMostPathBytes> path{};
};
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

constinit std::array<Mapping, kMostMappings> mappings;
constinit std::mutex mappings_mutex;  // of those who change them; the handler takes no lock

// Runs in signal context: only atomics, write(), signal() and _exit().
void on_fault(int number, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (const Mapping& mapping : mappings) {
    const std::uintptr_t begin = mapping.begin.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address - begin >= mapping.bytes.load(std::memory_order_relaxed)) continue;
    constexpr std::string_view kAfter =
        " became shorter while it was read, or its disk failed; put it back, and give the command again (a run goes on "
        "with --resume)\n";
    for (const std::string_view text : {std::string_view("error: "), std::string_view(mapping.path.data()), kAfter})
      if (write(STDERR_FILENO, text.data(), text.size()) < 0) break;
    _exit(kStorageFailed);
  }
  signal(number, SIG_DFL);  // the same access faults again
}

}  // namespace

void remember_mapping(const void* begin, std::size_t bytes, const std::filesystem::path& path) noexcept {
  const std::lock_guard lock(mappings_mutex);
  const auto free = std::ranges::find_if(mappings, [](const Mapping& m) { return m.begin.load() == 0; });
  if (free == mappings.end()) return;
  std::strncpy(free->path.data(), path.c_str(), kMostPathBytes - 1);
  free->bytes.store(bytes, std::memory_order_relaxed);
  free->begin.store(reinterpret_cast<std::uintptr_t>(begin), std::memory_order_release);
}

void forget_mapping(const void* begin) noexcept {
  const std::lock_guard lock(mappings_mutex);
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const auto found = std::ranges::find_if(mappings, [&](const Mapping& m) { return m.begin.load() == address; });
  if (found != mappings.end()) found->begin.store(0);
}

void tell_faults_in_mappings() noexcept {
  struct sigaction action{};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace trireme::base
