// Stretches of files, read one ahead of who uses them: the disk works while the last one is verified and copied. Past
// the page cache (O_DIRECT) where asked for: a load that nobody else on the host shares pushes nothing out of memory
// and spares the kernel's copy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <semaphore>
#include <span>
#include <thread>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/checkpoint/staged_file.h"

namespace trireme::checkpoint {

class WindowReader {
 public:
  static constexpr int64_t kBytes = StageBuffer::kBytes;

  /// Bytes [begin, end) of a file, at most kBytes; `begin` is a multiple of the page size. `file` stays open; `path`
  /// is for messages: retention may have renamed the folder since.
  struct Window {
    const base::FileDescriptor* file;
    std::filesystem::path path;
    int64_t begin = 0, end = 0;
  };

  WindowReader(std::vector<Window> windows, bool direct);
  ~WindowReader();
  WindowReader(const WindowReader&) = delete;

  /// The bytes of the windows, one a call, in order; valid until the next call. Errors    base::FileError
  std::span<const std::byte> next();

 private:
  struct Slot {
    StageBuffer buffer;
    std::exception_ptr failure;
    std::binary_semaphore full{0}, empty{1};
  };

  void read_all(const std::stop_token& stop);
  void fill(const Window& window, std::byte* to);

  const std::vector<Window> windows_;
  const bool direct_;
  const base::FileDescriptor* file_ = nullptr;  // the window's, which direct_file_ is too
  base::FileDescriptor direct_file_;
  std::array<Slot, 2> slots_;
  size_t taken_ = 0;
  std::jthread thread_;
};

}  // namespace trireme::checkpoint
