// MappedMemory: the memory of one region. It is mapped once and faulted in before the first step, in huge pages if the
// system has them.
#pragma once

#include <cstdint>

#include "trireme/comm/fold.h"

namespace trireme::engine {

class MappedMemory {
 public:
  MappedMemory() = default;
  /// Maps and faults in `bytes` zeroed bytes. Errors: Error with the numbers if the system does not have them.
  explicit MappedMemory(int64_t bytes);
  ~MappedMemory();
  MappedMemory(MappedMemory&& other) noexcept;
  MappedMemory& operator=(MappedMemory&& other) noexcept;

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

using CopyPiece = void (*)(void* to, const void* from, int64_t bytes);

/// Copies with all threads, in pieces of 1 MiB, for saves in the background: training stands still during the copy.
/// `piece` must not throw.
void copy_on_all_threads(char* to, const void* from, int64_t bytes, CopyPiece piece = comm::stream_copy);

}  // namespace trireme::engine
