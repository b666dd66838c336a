#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/formats/torch/zip.h"

namespace trireme::formats {
namespace {

constexpr int64_t kContentsAlignment = 64;
constexpr int64_t kField64Bytes = 4 + 16;
constexpr int64_t kLarge = UINT32_MAX;
constexpr uint16_t kZipVersion = 45;      // the first version with zip64, which all readers of torch.save files know
constexpr uint16_t kUtf8Names = 0x800;
constexpr uint16_t kPadding = 0x4246;  // the field "FB" that torch.save pads with

template <class Number>
void put(std::string& text, Number value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

bool is_large(const ZipLayout::Record& record) { return record.bytes >= kLarge; }

/// Bytes of a record's header without padding; the padding field takes 4 more at least.
int64_t bare_header_bytes(const ZipLayout::Record& record) {
  return kZipLocalBytes + std::ssize(record.name) + (is_large(record) ? kField64Bytes : 0) + 4;
}

int64_t entry_bytes(const ZipLayout::Record& record) {
  const int64_t wide = (is_large(record) ? 16 : 0) + (record.header >= kLarge ? 8 : 0);
  return kZipEntryBytes + std::ssize(record.name) + (wide > 0 ? 4 + wide : 0);
}

void put_sizes(std::string& text, const ZipLayout::Record& record) {
  const auto bytes = is_large(record) ? UINT32_MAX : static_cast<uint32_t>(record.bytes);
  put(text, bytes);
  put(text, bytes);
}

/// Version, flags, method "stored", no time, and the first day of the format.
void put_common(std::string& text, uint32_t crc32) {
  put(text, kZipVersion);
  put(text, kUtf8Names);
  put(text, uint16_t{0});
  put(text, uint16_t{0});
  put(text, uint16_t{0x21});
  put(text, crc32);
}

}  // namespace

void ZipLayout::add(const std::string& name, int64_t bytes) {
  check_invariant(name.size() < 256 && bytes >= 0, "an archive's entry has a short name and a size");
  Record record{.name = name, .bytes = bytes, .header = end_};
  const int64_t bare = end_ + bare_header_bytes(record);
  record.begin = (bare + kContentsAlignment - 1) / kContentsAlignment * kContentsAlignment;
  end_ = record.begin + bytes;
  records_.push_back(std::move(record));
}

std::string ZipLayout::header(size_t index, uint32_t crc32) const {
  const Record& record = records_[index];
  const auto padding = static_cast<size_t>(record.begin - record.header - bare_header_bytes(record));
  const size_t extra = padding + 4 + (is_large(record) ? kField64Bytes : 0);
  std::string text = "PK\x03\x04";
  put_common(text, crc32);
  put_sizes(text, record);
  put(text, static_cast<uint16_t>(record.name.size()));
  put(text, static_cast<uint16_t>(extra));
  text += record.name;
  if (is_large(record)) {
    put(text, uint16_t{1});
    put(text, uint16_t{16});
    put(text, record.bytes);
    put(text, record.bytes);
  }
  put(text, kPadding);
  put(text, static_cast<uint16_t>(padding));
  text.append(padding, 'Z');
  return text;
}

int64_t ZipLayout::bytes() const {
  int64_t total = end_ + kZipEnd64Bytes + kZipLocator64Bytes + kZipEndBytes;
  for (const Record& record : records_) total += entry_bytes(record);
  return total;
}

std::string ZipLayout::directory(std::span<const uint32_t> crc32) const {
  std::string text;
  for (size_t i = 0; i < records_.size(); ++i) {
    const Record& record = records_[i];
    const bool far = record.header >= kLarge;
    const uint16_t wide = static_cast<uint16_t>((is_large(record) ? 16 : 0) + (far ? 8 : 0));
    text += "PK\x01\x02";
    put(text, kZipVersion);
    put_common(text, crc32[i]);
    put_sizes(text, record);
    put(text, static_cast<uint16_t>(record.name.size()));
    put(text, static_cast<uint16_t>(wide > 0 ? 4 + wide : 0));
    text.append(10, '\0');  // comment, disk, attributes
    put(text, far ? UINT32_MAX : static_cast<uint32_t>(record.header));
    text += record.name;
    if (wide > 0) {
      put(text, uint16_t{1});
      put(text, wide);
      if (is_large(record)) put(text, record.bytes);
      if (is_large(record)) put(text, record.bytes);
      if (far) put(text, record.header);
    }
  }
  const auto entries = static_cast<uint64_t>(records_.size()), size = static_cast<uint64_t>(text.size());
  const uint64_t end64 = static_cast<uint64_t>(end_) + size;
  text += "PK\x06\x06";
  put(text, uint64_t{44});
  put(text, kZipVersion);
  put(text, kZipVersion);
  put(text, uint64_t{0});  // disks
  put(text, entries);
  put(text, entries);
  put(text, size);
  put(text, static_cast<uint64_t>(end_));
  text += "PK\x06\x07";
  put(text, uint32_t{0});
  put(text, end64);
  put(text, uint32_t{1});
  const auto few = static_cast<uint16_t>(std::min<uint64_t>(entries, UINT16_MAX));
  text += "PK\x05\x06";
  put(text, uint32_t{0});
  put(text, few);
  put(text, few);
  put(text, static_cast<uint32_t>(std::min<uint64_t>(size, UINT32_MAX)));
  put(text, static_cast<uint32_t>(std::min<int64_t>(end_, kLarge)));
  put(text, uint16_t{0});
  return text;
}

}  // namespace trireme::formats
