#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/formats/torch/zip.h"

namespace trireme::formats {
namespace {

constexpr uint32_t kLocalMagic = 0x04034b50, kEntryMagic = 0x02014b50, kEndMagic = 0x06054b50;
constexpr uint32_t kEnd64Magic = 0x06064b50, kLocator64Magic = 0x07064b50;
constexpr int64_t kMaxCommentBytes = 65535;

/// A number of the format at a place that the caller has checked.
template <class Number>
Number at(std::string_view bytes, size_t offset) {
  Number value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

struct Directory {
  uint64_t entries = 0;
  uint64_t bytes = 0;
  uint64_t begin = 0;
};

class ZipReader {
 public:
  ZipReader(int64_t bytes, const checkpoint::ReadBytes& read, const std::string& path)
      : bytes_(bytes), read_(read), path_(path) {}

  std::vector<ZipEntry> entries() {
    const Directory directory = find_directory();
    const std::string text = fetch(static_cast<int64_t>(directory.begin), static_cast<int64_t>(directory.bytes));
    std::vector<ZipEntry> result;
    result.reserve(directory.entries);
    std::string_view rest = text;
    for (uint64_t i = 0; i < directory.entries; ++i) result.push_back(parse_entry(rest));
    check_names(result);
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw CheckpointError(fmt::format("{} is not a sound zip archive: {}", path_, problem), path_);
  }

  std::string fetch(int64_t offset, int64_t count) const {
    if (offset < 0 || count < 0 || offset > bytes_ || count > bytes_ - offset)
      fail(fmt::format("it needs {} at byte {}, but has {}: it is truncated", base::plural(count, "byte"), offset,
                       base::plural(bytes_, "byte")));
    std::string text(count, '\0');
    read_(offset, std::as_writable_bytes(std::span(text)));
    return text;
  }

  Directory find_directory() const {
    if (bytes_ < kZipEndBytes) fail(fmt::format("it has only {}", base::plural(bytes_, "byte")));
    const int64_t tail_bytes = std::min(bytes_, kZipEndBytes + kMaxCommentBytes);
    const std::string tail = fetch(bytes_ - tail_bytes, tail_bytes);
    auto place = std::ssize(tail) - kZipEndBytes;
    while (place >= 0 && at<uint32_t>(tail, static_cast<size_t>(place)) != kEndMagic) --place;
    if (place < 0) fail("it has no directory at its end: it is truncated");
    const std::string_view end = std::string_view(tail).substr(static_cast<size_t>(place));
    if (at<uint16_t>(end, 4) != 0 || at<uint16_t>(end, 6) != 0) fail("it spans several disks");
    Directory directory{
        .entries = at<uint16_t>(end, 10), .bytes = at<uint32_t>(end, 12), .begin = at<uint32_t>(end, 16)};
    if (directory.entries == UINT16_MAX || directory.bytes == UINT32_MAX || directory.begin == UINT32_MAX)
      directory = find_directory64(bytes_ - tail_bytes + place).value_or(directory);
    check(directory);
    return directory;
  }

  /// The directory by the 64-bit end record, which a locator just before the small end record points at.
  std::optional<Directory> find_directory64(int64_t end) const {
    if (end < kZipLocator64Bytes) return std::nullopt;
    const std::string locator = fetch(end - kZipLocator64Bytes, kZipLocator64Bytes);
    if (at<uint32_t>(locator, 0) != kLocator64Magic) return std::nullopt;
    const auto place = at<uint64_t>(locator, 8);
    if (place > static_cast<uint64_t>(bytes_)) fail("its 64-bit directory lies outside of it");
    const std::string record = fetch(static_cast<int64_t>(place), kZipEnd64Bytes);
    if (at<uint32_t>(record, 0) != kEnd64Magic) fail("its 64-bit directory is not where it says");
    return Directory{
        .entries = at<uint64_t>(record, 32), .bytes = at<uint64_t>(record, 40), .begin = at<uint64_t>(record, 48)};
  }

  void check(const Directory& directory) const {
    const auto bytes = static_cast<uint64_t>(bytes_);
    if (directory.begin > bytes || directory.bytes > bytes - directory.begin) fail("its directory lies outside of it");
    if (directory.bytes > kMaxDirectoryBytes)
      fail(fmt::format("its directory has {} bytes, more than the {} that are read", directory.bytes,
                       kMaxDirectoryBytes));
    if (directory.entries > directory.bytes / kZipEntryBytes)
      fail(fmt::format("{} entries do not fit its directory of {} bytes", directory.entries, directory.bytes));
  }

  /// Takes one entry off the front of `rest`.
  ZipEntry parse_entry(std::string_view& rest) const {
    if (rest.size() < kZipEntryBytes || at<uint32_t>(rest, 0) != kEntryMagic)
      fail("an entry of its directory is damaged");
    const size_t name_bytes = at<uint16_t>(rest, 28), extra_bytes = at<uint16_t>(rest, 30);
    const size_t total = kZipEntryBytes + name_bytes + extra_bytes + at<uint16_t>(rest, 32);
    if (rest.size() < total) fail("an entry of its directory is cut off");
    const std::string name(rest.substr(kZipEntryBytes, name_bytes));
    if ((at<uint16_t>(rest, 8) & 1) != 0) fail(fmt::format("'{}' is encrypted", name));
    const bool stored = at<uint16_t>(rest, 10) == 0;
    uint64_t packed = at<uint32_t>(rest, 20), bytes = at<uint32_t>(rest, 24), header = at<uint32_t>(rest, 42);
    widen(rest.substr(kZipEntryBytes + name_bytes, extra_bytes), name, {&bytes, &packed, &header});
    if (stored && packed != bytes) fail(fmt::format("'{}' says it has {} bytes stored as {}", name, bytes, packed));
    rest.remove_prefix(total);
    ZipEntry entry = locate(name, header, packed);
    entry.stored = stored;
    return entry;
  }

  /// Replaces numbers that are 0xffffffff by those of the zip64 field, which lists them in this order.
  void widen(std::string_view extra, const std::string& name, std::initializer_list<uint64_t*> numbers) const {
    while (extra.size() >= 4) {
      const size_t field = at<uint16_t>(extra, 2);
      if (field > extra.size() - 4) fail(fmt::format("the extra fields of '{}' are damaged", name));
      if (at<uint16_t>(extra, 0) == 1) {
        std::string_view values = extra.substr(4, field);
        for (uint64_t* number : numbers) {
          if (*number != UINT32_MAX || values.size() < 8) continue;
          *number = at<uint64_t>(values, 0);
          values.remove_prefix(8);
        }
      }
      extra.remove_prefix(4 + field);
    }
  }

  /// The contents follow the entry's own header, whose name and extra field may have other lengths than in the
  /// directory.
  ZipEntry locate(const std::string& name, uint64_t header, uint64_t bytes) const {
    const auto end = static_cast<uint64_t>(bytes_);
    if (header > end || bytes > end) fail(fmt::format("'{}' lies outside of it", name));
    const std::string local = fetch(static_cast<int64_t>(header), kZipLocalBytes);
    if (at<uint32_t>(local, 0) != kLocalMagic) fail(fmt::format("'{}' is not where the directory says", name));
    const uint64_t begin = header + kZipLocalBytes + at<uint16_t>(local, 26) + at<uint16_t>(local, 28);
    if (begin > end || bytes > end - begin) fail(fmt::format("'{}' lies outside of it", name));
    return {.name = name, .begin = static_cast<int64_t>(begin), .bytes = static_cast<int64_t>(bytes)};
  }

  void check_names(const std::vector<ZipEntry>& entries) const {
    std::vector<std::string_view> names;
    names.reserve(entries.size());
    for (const ZipEntry& entry : entries) names.push_back(entry.name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) fail(fmt::format("'{}' is there twice", *twice));
  }

  int64_t bytes_;
  const checkpoint::ReadBytes& read_;
  const std::string& path_;
};

}  // namespace

bool looks_like_zip(std::string_view first_bytes) { return first_bytes.starts_with("PK\x03\x04"); }

std::vector<ZipEntry> read_zip_directory(int64_t bytes, const checkpoint::ReadBytes& read, const std::string& path) {
  return ZipReader(bytes, read, path).entries();
}

}  // namespace trireme::formats
