// Memory of one region: mapped once, faulted in before the first step, huge pages where the system gives them.
#pragma once

#include <cstdint>

namespace trireme::engine {

class MappedMemory {
 public:
  MappedMemory() = default;
  /// Maps and faults in `bytes` zeroed bytes. Errors: Error with the numbers when the system has not got them.
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

}  // namespace trireme::engine
