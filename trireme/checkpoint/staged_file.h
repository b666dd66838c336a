// StagedFile: writes a file from an aligned buffer, past the page cache (O_DIRECT) if the file system allows it. Then a
// save neither evicts what training reads nor waits for the kernel's copy. A page at the edge of a range that is only
// partly filled goes through the cache, because another rank may write the rest of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "trireme/base/files.h"

namespace trireme::checkpoint {

/// Memory aligned for O_DIRECT; files use one buffer in turn.
class StageBuffer {
 public:
  static constexpr int64_t kBytes = int64_t{4} << 20;
  StageBuffer();
  std::byte* data() const { return bytes_.get(); }

 private:
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  std::unique_ptr<std::byte[], Free> bytes_;
};

class StagedFile {
 public:
  /// Takes ownership of `file`, open for reading and writing. `direct` false: everything goes through the page cache.
  StagedFile(base::FileDescriptor file, std::filesystem::path path, StageBuffer& buffer, bool direct = true);

  /// Memory for bytes [position, position + count) of the file. The caller fills it before the next call. Positions
  /// must rise, and no range may cross a multiple of StageBuffer::kBytes. Errors    base::FileError of earlier bytes
  std::span<std::byte> room(int64_t position, int64_t count);

  /// Returns when all bytes are on the disk. Errors    base::FileError
  void flush();

 private:
  void write_out();

  base::FileDescriptor file_, direct_;
  const std::filesystem::path path_;
  StageBuffer& buffer_;
  int64_t begin_ = 0, end_ = 0;  // the bytes of the file that are in the buffer and not yet written
};

}  // namespace trireme::checkpoint
