// WindowReader: a thread reads ranges of files, one range ahead of the caller. So the disk reads while the caller
// verifies and copies the range before. It can bypass the page cache (O_DIRECT), which saves the kernel's copy and
// evicts nothing from memory. That is worth it if no other rank of the host reads the same data.
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

  /// Bytes [begin, end) of a file, at most kBytes; `begin` is a multiple of the page size. `file` must stay open.
  /// `path` is only for messages, because save.keep_last may have removed the folder since.
  struct Window {
    const base::FileDescriptor* file;
    std::filesystem::path path;
    int64_t begin = 0, end = 0;
  };

  WindowReader(std::vector<Window> windows, bool direct);
  ~WindowReader();
  WindowReader(const WindowReader&) = delete;

  /// The next window's bytes, in order; valid until the next call. Errors    base::FileError
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
  const base::FileDescriptor* file_ = nullptr;  // of the last window; direct_file_ is this file opened with O_DIRECT
  base::FileDescriptor direct_file_;
  std::array<Slot, 2> slots_;
  size_t taken_ = 0;
  std::jthread thread_;
};

}  // namespace trireme::checkpoint
