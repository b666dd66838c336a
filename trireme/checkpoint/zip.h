// Zip archives of stored (uncompressed) entries, as torch.save writes them: the directory of one that is read, and the
// layout of one to be written, whose sizes are all known before its first byte.
//
// A directory is untrusted: every offset is checked against the archive before it is used. Checksums of entries are
// written but not compared when reading: torch.save may be told not to compute them.
// Source: PKWARE APPNOTE.TXT 6.3.9, sections 4.3 and 4.5.3 (zip64); PyTorch's inline_container.h (alignment).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/safetensors.h"

namespace trireme::checkpoint {

/// Longest directory that is read: some 200,000 entries.
constexpr int64_t kMaxDirectoryBytes = 24 << 20;

/// Of a record's header, an entry of the directory and the ends behind it, each without names and fields that vary.
inline constexpr int64_t kZipLocalBytes = 30, kZipEntryBytes = 46, kZipEndBytes = 22, kZipEnd64Bytes = 56;
inline constexpr int64_t kZipLocator64Bytes = 20;

struct ZipEntry {
  std::string name;
  int64_t begin = 0;  ///< first byte of the contents, from the start of the archive
  int64_t bytes = 0;
  bool stored = true;  ///< false: compressed, so its bytes are not the contents
};

/// True when the archive begins like one; an old torch.save file does not.
bool looks_like_zip(std::string_view first_bytes);

/// The entries of an archive of `bytes` bytes in the order of its directory; `path` is for messages.
///
/// Cost      reads the directory (at most 24 MiB), 64 KiB at the end, and 30 bytes an entry
/// Errors    CheckpointError: no directory, one that is damaged, an entry that is encrypted, outside the archive or
///           there twice
std::vector<ZipEntry> read_zip_directory(int64_t bytes, const ReadBytes& read, const std::string& path);

/// Where everything of an archive lies; contents begin at multiples of 64 bytes.
class ZipLayout {
 public:
  struct Record {
    std::string name;
    int64_t bytes = 0;
    int64_t header = 0;  ///< first byte of its header
    int64_t begin = 0;   ///< first byte of its contents
  };

  void add(const std::string& name, int64_t bytes);
  const std::vector<Record>& records() const { return records_; }
  /// Of the whole archive.
  int64_t bytes() const;
  /// Header of a record, to be written at `header`; `crc32` is that of its contents.
  std::string header(size_t record, uint32_t crc32) const;
  /// The directory, to be written behind the last record; one checksum a record.
  std::string directory(std::span<const uint32_t> crc32) const;
  int64_t directory_begin() const { return end_; }

 private:
  std::vector<Record> records_;
  int64_t end_ = 0;
};

}  // namespace trireme::checkpoint
