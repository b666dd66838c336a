// BlockFile: a file of a checkpoint that is verified while it is read. The first read of a 1 MiB block compares the
// block with its checksum in the manifest (manifest.h). Files without a manifest entry are not verified.
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

/// Whether an error message names an older checkpoint to use instead.
enum class Advice { none, name_older };

/// Throws the DamagedError "the checkpoint <folder> is damaged: <problem>; the next older good one is ...".
[[noreturn]] void throw_damaged(const std::filesystem::path& folder, const std::string& problem,
                                const std::filesystem::path& file, const std::string& tensor = "",
                                Advice advice = Advice::name_older);

/// Throws DamagedError if the system's error means that the file or its bytes are lost, else UnreadableError.
[[noreturn]] void throw_refused(const base::FileError& error, Advice advice = Advice::name_older);

/// Thread-safe for reading.
class BlockFile {
 public:
  /// Errors    DamagedError when the file is missing or its size is not the manifest's; UnreadableError
  BlockFile(const std::filesystem::path& path, std::optional<ManifestFile> expected,
            Advice advice = Advice::name_older);

  const std::filesystem::path& path() const { return path_; }
  const base::FileDescriptor& descriptor() const { return file_; }
  int64_t bytes() const { return bytes_; }

  /// Fills `target` with the verified bytes from `offset` on; `tensor` is for messages.
  ///
  /// Cost      reads an unverified block whole, and only the requested bytes of a verified block
  /// Errors    DamagedError naming folder, file, block, byte range and the next older complete checkpoint
  void read(int64_t offset, std::span<std::byte> target, const std::string& tensor = "") const;

  /// Reads block `block` whole into the first bytes of `target` and says what is wrong with it, if anything.
  std::optional<std::string> read_block(int64_t block, std::span<std::byte> target) const;

  /// What is wrong with `bytes` as the contents of block `block`, if anything.
  std::optional<std::string> check_block(int64_t block, std::span<const std::byte> bytes) const;

  int64_t block_end(int64_t block) const;  ///< one past its last byte in the file

  /// " (it holds the header, tensor 'a', tensor 'b')", from the file's unverified header. Empty if that is unreadable.
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
