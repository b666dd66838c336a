// MappedMemory: the memory of one region. It is mapped once and faulted in before the first step, in huge pages if the
// system has them.
#pragma once

#include <cstdint>
#include <utility>

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
  bool holds(const void* address) const {
    const auto* const first = static_cast<const char*>(data_);
    return first != nullptr && address >= first && address < first + bytes_;
  }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

/// Page-locks memory of the host during its life, so that a GPU copies from and to it beside its other work.
class PageLock {
 public:
  PageLock() = default;
  /// Of memory that is there for longer. Errors: Error with the numbers if CUDA cannot lock it
  explicit PageLock(const MappedMemory& memory);
  PageLock(PageLock&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  PageLock& operator=(PageLock&& other) noexcept { return std::swap(data_, other.data_), *this; }
  ~PageLock();

 private:
  void* data_ = nullptr;
};

using CopyPiece = void (*)(void* to, const void* from, int64_t bytes);

/// Copies with all threads, in pieces of 1 MiB, for saves in the background: training stands still during the copy.
/// `piece` must not throw.
void copy_on_all_threads(char* to, const void* from, int64_t bytes, CopyPiece piece = comm::stream_copy);

}  // namespace trireme::engine
