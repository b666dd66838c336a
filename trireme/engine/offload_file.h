// OffloadFile: what a rank's values take on a disk while no action uses them. The file has no name, so it is gone with
// its process, however that ends. Blocks go past the system's cache where the file system allows it, and each has a
// checksum in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <unordered_map>

#include "trireme/base/files.h"
#include "trireme/engine/block_io.h"

namespace trireme::engine {

constexpr int64_t kOffloadBlock = 1 << 20;  ///< bytes that are read or written at once

class OffloadFile {
 public:
  /// Reserves `bytes` zeroed bytes in `folder`.
  /// Errors    UsageError: the folder is not there or lies in memory (tmpfs); FileError: it has no room
  OffloadFile(const std::filesystem::path& folder, int64_t bytes);
  ~OffloadFile();
  OffloadFile(const OffloadFile&) = delete;
  OffloadFile& operator=(const OffloadFile&) = delete;

  int descriptor() const { return file_.get(); }

  /// Moves a value's bytes. `io` was made for descriptor(). Offsets, sizes and memory are multiples of
  /// schedule::kDiskAlignment.
  /// Errors    FileError naming `what`: the disk fails, or a block is not what was written
  void read(BlockIo& io, char* to, int64_t offset, int64_t bytes, const std::string& what);
  void write(BlockIo& io, const char* from, int64_t offset, int64_t bytes, const std::string& what);

  /// The file as memory, for those who look at all of the state: checkpoints and first values. Nothing may be read or
  /// written meanwhile.
  char* data() const { return data_; }
  /// Reads a value with the system's cache, in which data() then finds it, and compares its checksums.
  /// Errors    as read()
  void verify(int64_t offset, int64_t bytes, const std::string& what);
  /// Takes the checksums of a value that was changed through data().
  void seal(int64_t offset, int64_t bytes);
  /// Gives back the memory in which the system keeps what was seen through data().
  void leave();

 private:
  [[noreturn]] void fail_damaged(const std::string& what, int64_t offset) const;
  bool is_as_written(const Piece& piece);
  [[noreturn]] void fail(const char* verb, const std::string& what, const PieceError& error) const;

  std::filesystem::path folder_;
  base::FileDescriptor file_, cached_;  // the same file, past the system's cache and through it
  int64_t bytes_;
  char* data_ = nullptr;
  std::mutex mutex_;  // of the checksums
  std::unordered_map<int64_t, uint64_t> checksums_;  // by the offset of a block
};

}  // namespace trireme::engine
