// Writes a file's bytes through an aligned buffer and past the page cache (O_DIRECT) where the file system allows it:
// a save neither pushes what training reads out of memory nor waits for the kernel's own copy. Pages that are not
// filled whole, the edges of a run, go the usual way, since another rank may be writing their other half.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "trireme/base/files.h"

namespace trireme::checkpoint {

/// Aligned as direct access wants it; one serves many files in turn.
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
  /// Takes over `file`, open for reading and writing. `direct` false: everything goes through the page cache.
  StagedFile(base::FileDescriptor file, std::filesystem::path path, StageBuffer& buffer, bool direct = true);

  /// Where bytes [position, position + count) of the file are to be put before the next call. Positions rise;
  /// no piece crosses a multiple of StageBuffer::kBytes. Errors    base::FileError of earlier bytes
  std::span<std::byte> room(int64_t position, int64_t count);

  /// What was put is on the disk when this returns. Errors    base::FileError
  void flush();

 private:
  void write_out();

  base::FileDescriptor file_, direct_;
  const std::filesystem::path path_;
  StageBuffer& buffer_;
  int64_t begin_ = 0, end_ = 0;  // of the file, in the buffer and not yet written
};

}  // namespace trireme::checkpoint
