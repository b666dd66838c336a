// Address space of any size on a few pages: every 32 MiB of it are the same 32 MiB of memory. Units run there to say
// what they would do (recorded_work.h): operations do not run, and what copies bytes beside them writes values that
// nobody reads.
#pragma once

#include <cstdint>

namespace trireme::costs {

class MirrorMemory {
 public:
  /// Errors    Error if the system has no such address space
  explicit MirrorMemory(int64_t bytes);
  ~MirrorMemory();
  MirrorMemory(const MirrorMemory&) = delete;
  MirrorMemory& operator=(const MirrorMemory&) = delete;

  char* data() const { return data_; }
  [[noreturn]] static void refuse(int64_t bytes);  ///< Errors    Error: the system has no such address space

 private:
  char* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace trireme::costs
