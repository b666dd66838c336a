// Zip archives of stored (uncompressed) entries, as torch.save writes them. Reads the directory of an archive, and lays
// out a new archive, all of whose sizes are known before its first byte.
//
// A directory is untrusted: every offset is checked against the archive before it is used. Checksums of entries are
// written but not compared when reading, because torch.save has an option not to compute them.
// Source: PKWARE APPNOTE.TXT 6.3.9, sections 4.3 and 4.5.3 (zip64); PyTorch's inline_container.h (alignment).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/safetensors.h"

namespace trireme::formats {

/// Longest directory that is read: some 200,000 entries.
constexpr int64_t kMaxDirectoryBytes = 24 << 20;

/// Bytes of a record's header, a directory's entry and the end records, without names and fields of variable length.
inline constexpr int64_t kZipLocalBytes = 30, kZipEntryBytes = 46, kZipEndBytes = 22, kZipEnd64Bytes = 56;
inline constexpr int64_t kZipLocator64Bytes = 20;

struct ZipEntry {
  std::string name;
  int64_t begin = 0;  ///< first byte of the contents, from the start of the archive
  int64_t bytes = 0;
  bool stored = true;  ///< false: compressed, so its bytes are not the contents
};

/// True if the bytes begin like a zip archive; files of old torch.save versions do not.
bool looks_like_zip(std::string_view first_bytes);

/// The entries of an archive of `bytes` bytes in the order of its directory; `path` is for messages.
///
/// Cost      reads the directory (at most 24 MiB), 64 KiB at the end, and 30 bytes an entry
/// Errors    CheckpointError: no directory, a damaged directory, an entry that is encrypted, outside the archive or
///           listed twice
std::vector<ZipEntry> read_zip_directory(int64_t bytes, const checkpoint::ReadBytes& read, const std::string& path);

/// The places of all records in a new archive; contents begin at multiples of 64 bytes.
class ZipLayout {
 public:
  struct Record {
    std::string name;
    int64_t bytes = 0;
    int64_t header = 0;  ///< first byte of its header
    int64_t begin = 0;  ///< first byte of its contents
  };

  void add(const std::string& name, int64_t bytes);
  const std::vector<Record>& records() const { return records_; }
  /// Bytes of the whole archive.
  int64_t bytes() const;
  /// The header of a record, to be written at Record::header; `crc32` is the checksum of its contents.
  std::string header(size_t record, uint32_t crc32) const;
  /// The directory, to be written at directory_begin(); `crc32` has one checksum a record.
  std::string directory(std::span<const uint32_t> crc32) const;
  int64_t directory_begin() const { return end_; }

 private:
  std::vector<Record> records_;
  int64_t end_ = 0;
};

}  // namespace trireme::formats
