// One file of a checkpoint that is verified as it is read: every 1 MiB block that a read touches is compared
// with its checksum the first time. Files without a manifest entry are read as they are.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "trireme/base/files.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme::checkpoint {

/// Whether an error looks for the checkpoint to take instead.
enum class Advice { none, name_older };

/// Throws the DamagedError "the checkpoint <folder> is damaged: <problem>; the next older good one is ...".
[[noreturn]] void throw_damaged(const std::filesystem::path& folder, const std::string& problem,
                                const std::filesystem::path& file, const std::string& tensor = "",
                                Advice advice = Advice::name_older);

/// Throws what a refusal of the system means: DamagedError where the file or its bytes are lost, else UnreadableError.
[[noreturn]] void throw_refused(const base::FileError& error, Advice advice = Advice::name_older);

/// Threads may read at the same time.
class BlockFile {
 public:
  /// Errors    DamagedError when the file is missing or its size is not the manifest's; UnreadableError
  BlockFile(const std::filesystem::path& path, std::optional<ManifestFile> expected,
            Advice advice = Advice::name_older);

  const std::filesystem::path& path() const { return path_; }
  const base::FileDescriptor& descriptor() const { return file_; }
  int64_t bytes() const { return bytes_; }

  /// Fills `target` with the bytes from `offset`, verified; `tensor` is for messages.
  ///
  /// Cost      a block not seen before is read whole; seen ones only as far as asked
  /// Errors    DamagedError naming folder, file, block, byte range and the next older complete checkpoint
  void read(int64_t offset, std::span<std::byte> target, const std::string& tensor = "") const;

  /// Reads block `block` whole into the first bytes of `target` and says what is wrong with it, if anything.
  std::optional<std::string> read_block(int64_t block, std::span<std::byte> target) const;

  /// What is wrong with `bytes` as the contents of block `block`, if anything.
  std::optional<std::string> check_block(int64_t block, std::span<const std::byte> bytes) const;

  int64_t block_end(int64_t block) const;  ///< one past its last byte in the file

  /// " (it holds the header, tensors 'a' and 'b')", as far as the file's header, unverified, can be read; else empty.
  std::string contents_of(int64_t block) const;

 private:
  std::string name_of(int64_t block) const;

  std::filesystem::path path_;
  base::FileDescriptor file_;
  int64_t bytes_ = 0;
  std::optional<ManifestFile> expected_;
  Advice advice_;
  std::unique_ptr<std::atomic<bool>[]> verified_;  ///< one flag per block
};

}  // namespace trireme::checkpoint
