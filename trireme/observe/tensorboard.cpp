#include "trireme/observe/tensorboard.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <filesystem>

#include "trireme/base/units.h"
#include "trireme/observe/append.h"

namespace trireme::observe {
namespace {

// CRC-32C (Castagnoli), as records have it.
constexpr std::array<uint32_t, 256> kCastagnoli = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78u : 0);
    table[i] = crc;
  }
  return table;
}();

uint32_t masked_crc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) crc = (crc >> 8) ^ kCastagnoli[(crc ^ static_cast<uint8_t>(byte)) & 0xFF];
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

template <class Number>
std::string little_endian(Number number) {
  std::string bytes;
  for (size_t i = 0; i < sizeof number; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xFF);
  return bytes;
}

// ---- fields of protocol buffers: number and kind, then the value ----
enum class Wire : uint64_t { varint = 0, eight_bytes = 1, length = 2, four_bytes = 5 };

std::string varint(uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>((number & 0x7F) | 0x80);
  return bytes + static_cast<char>(number);
}
std::string field(uint64_t number, Wire wire) { return varint(number << 3 | static_cast<uint64_t>(wire)); }
std::string field(uint64_t number, std::string_view bytes) {
  return field(number, Wire::length) + varint(bytes.size()) + std::string(bytes);
}

std::string event(double wall_time, int64_t step, const std::string& what) {
  return field(1, Wire::eight_bytes) + little_endian(std::bit_cast<uint64_t>(wall_time)) + field(2, Wire::varint) +
         varint(static_cast<uint64_t>(step)) + what;
}

std::string record(const std::string& data) {
  const std::string length = little_endian(uint64_t{data.size()});
  return length + little_endian(masked_crc32c(length)) + data + little_endian(masked_crc32c(data));
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// The number in the name of the folder's last file, a time in seconds; -1: there is none. TensorBoard reads files in
// the order of their names, so that of a start within the same second must be later.
int64_t newest_file(const std::filesystem::path& folder) {
  constexpr int64_t kYear2286 = 10'000'000'000;  // has more digits
  int64_t newest = -1;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kEventsPrefix)) continue;
    const std::string_view rest = std::string_view(name).substr(kEventsPrefix.size());
    const int64_t number = base::parse_count(rest.substr(0, rest.find('.'))).value_or(-1);
    if (number < kYear2286) newest = std::max(newest, number);
  }
  return newest;
}

}  // namespace

std::string events_begin(double wall_time, int64_t first_step) {
  constexpr uint64_t kFileVersion = 3, kSessionLog = 7, kStatus = 1, kStart = 1;
  std::string records = record(event(wall_time, 0, field(kFileVersion, "brain.Event:2")));
  if (first_step > 1)
    records += record(event(wall_time, first_step, field(kSessionLog, field(kStatus, Wire::varint) + varint(kStart))));
  return records;
}

std::string event_record(double wall_time, int64_t step, const std::vector<base::Measured>& scalars) {
  constexpr uint64_t kSummary = 5, kValue = 1, kTag = 1, kSimpleValue = 2;
  std::string values;
  for (const base::Measured& scalar : scalars)
    values += field(kValue, field(kTag, scalar.name) + field(kSimpleValue, Wire::four_bytes) +
                                little_endian(std::bit_cast<uint32_t>(static_cast<float>(scalar.value))));
  return record(event(wall_time, step, field(kSummary, values)));
}

std::string event_text_record(double wall_time, int64_t step, const std::string& tag, const std::string& text) {
  constexpr uint64_t kSummary = 5, kValue = 1, kTag = 1, kTensor = 8, kMetadata = 9;
  constexpr uint64_t kPlugin = 1, kPluginName = 1;  // of SummaryMetadata and its PluginData
  constexpr uint64_t kType = 1, kStringType = 7, kShape = 2, kDimension = 2, kSize = 1, kStrings = 8;  // of a tensor
  const std::string shape = field(kDimension, field(kSize, Wire::varint) + varint(1));
  const std::string tensor =
      field(kType, Wire::varint) + varint(kStringType) + field(kShape, shape) + field(kStrings, text);
  const std::string value = field(kTag, tag) + field(kTensor, tensor) +
                            field(kMetadata, field(kPlugin, field(kPluginName, std::string_view("text"))));
  return record(event(wall_time, step, field(kSummary, field(kValue, value))));
}

EventWriter::EventWriter(const std::filesystem::path& folder, int64_t resumed_step) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) base::throw_file_error("create", folder, failure.value());
  const double time = now();
  const int64_t name = std::max(static_cast<int64_t>(time), newest_file(folder) + 1);
  path_ = folder / fmt::format("{}{:010}.trireme.{}", kEventsPrefix, name, resumed_step);
  waiting_ = events_begin(time, resumed_step + 1);
  if (resumed_step == 0) go_on();
}

void EventWriter::go_on() {
  if (!waiting_) return;
  base::write_file_atomic(path_, *waiting_);
  file_ = base::open_file(path_, O_WRONLY | O_APPEND | O_NOFOLLOW);
  waiting_.reset();
}

void EventWriter::append(const MetricsRow& row) {
  go_on();
  observe::append(file_, event_record(now(), row.step, numbers_of(row)), path_);
}

void EventWriter::append_text(int64_t step, const std::string& tag, const std::string& text) {
  const std::string text_record = event_text_record(now(), step, tag, "```\n" + text + "\n```");
  waiting_ ? void(*waiting_ += text_record) : observe::append(file_, text_record, path_);
}

}  // namespace trireme::observe
