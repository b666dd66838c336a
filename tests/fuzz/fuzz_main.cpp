// libFuzzer's entry point for the target TRIREME_FUZZ_TARGET. It counts the memory that lives while the target runs:
// the input's size and 64 MiB are allowed, for whatever number of allocations.
#include <sanitizer/allocator_interface.h>

#include <cstdint>
#include <string>
#include <vector>

#include "targets.h"

namespace {

constexpr int64_t kFreeBytes = int64_t{64} << 20;

bool counting = false;
int64_t live_bytes = 0;
int64_t allowed_bytes = 0;

void on_malloc(const volatile void*, size_t bytes) {
  if (!counting) return;
  live_bytes += static_cast<int64_t>(bytes);
  if (live_bytes <= allowed_bytes) return;
  counting = false;
  trireme::fuzz::require(false, "a file makes its reader allocate no more than its own size and 64 MiB");
}

void on_free(const volatile void* pointer) {
  if (counting && pointer) live_bytes -= static_cast<int64_t>(__sanitizer_get_allocated_size(pointer));
}

trireme::fuzz::Target find_target() {
  for (const auto& [name, run] : trireme::fuzz::targets()) {
    if (name == TRIREME_FUZZ_TARGET) return run;
  }
  trireme::fuzz::require(false, "there is a target of this name");
  return nullptr;
}

}  // namespace

/// TRIREME_FUZZ_SECONDS says how long to look; 600 when it is absent.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
  const char* seconds = std::getenv("TRIREME_FUZZ_SECONDS");
  static std::string limit = std::string("-max_total_time=") + (seconds ? seconds : "600");
  static std::vector<char*> arguments(*argv, *argv + *argc);
  arguments.insert(arguments.begin() + 1, limit.data());
  arguments.push_back(nullptr);
  *argv = arguments.data();
  *argc += 1;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const trireme::fuzz::Target target = find_target();
  live_bytes = 0;
  allowed_bytes = static_cast<int64_t>(size) + kFreeBytes;
  counting = true;
  trireme::fuzz::run_checked(target, {reinterpret_cast<const char*>(data), size});
  counting = false;
  return 0;
}
