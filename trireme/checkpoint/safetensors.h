// The safetensors format: 8 bytes little-endian header length n, n bytes of JSON padded with spaces to a
// multiple of 8, then the tensors without holes, row-major, little-endian.
//
// A header is untrusted input: every rule of the format is checked before an offset is used, and a broken
// rule is a CheckpointError naming the file and the tensor. Offsets are kept absolute (from the start of
// the file), because that is what readers and writers of byte ranges need.
// Source: github.com/huggingface/safetensors, README "Format".
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/checkpoint/dtype.h"

namespace trireme::checkpoint {

/// Longest header that readers of the format accept.
constexpr int64_t kMaxHeaderBytes = 100'000'000;

/// What a tensor is, wherever it is stored.
struct TensorSpec {
  std::string name;            ///< Hugging Face's name: "model.norm.weight"
  std::vector<int64_t> shape;  ///< whole tensor, never a shard; empty for a scalar
  Dtype dtype = Dtype::f32;    ///< dtype in the file
};

/// A shape from a file may say anything. So few elements times the bytes of any dtype (16 at most) still count as
/// int64_t: what num_elements() lets through can be multiplied by size_of().
inline constexpr int64_t kMostElements = int64_t{1} << 58;

/// Number of elements; ShapeError when a size is negative or they are more than kMostElements.
int64_t num_elements(std::span<const int64_t> shape);

/// Their bytes in `dtype`. Errors as num_elements()
int64_t tensor_bytes(std::span<const int64_t> shape, Dtype dtype);

/// "[256, 64]"
std::string shape_text(std::span<const int64_t> shape);

/// Where a tensor lies in its file.
struct TensorEntry {
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  int64_t begin = 0;  ///< first byte, from the start of the file
  int64_t end = 0;    ///< one past the last byte
};

struct SafetensorsHeader {
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
  int64_t data_begin = 0;  ///< 8 + n
};

/// Fills the span with the file's bytes from `offset`.
using ReadBytes = std::function<void(int64_t offset, std::span<std::byte> target)>;

/// Reads and checks the header of a file of `file_bytes` bytes; `path` is for messages.
///
/// Cost      reads 8 + n bytes
/// Errors    CheckpointError: file shorter than its header or its tensors, bytes left over, a hole or an
///           overlap, unknown dtype, size that contradicts shape and dtype, name given twice, broken JSON
SafetensorsHeader read_header(int64_t file_bytes, const ReadBytes& read, const std::string& path);

/// The first bytes of a file (length, JSON, padding) that holds `tensors` one after the other in this order.
///
/// Errors    CheckpointError when a name is not UTF-8, is reserved, comes twice, or the header is too long
std::string write_header(std::span<const TensorSpec> tensors, const std::map<std::string, std::string>& metadata);

/// A whole safetensors file, memory-mapped and read-only. No checksums: load.h verifies.
class SafetensorsFile {
 public:
  /// Errors    base::FileError when it cannot be mapped, CheckpointError as read_header()
  explicit SafetensorsFile(const std::filesystem::path& path);

  const SafetensorsHeader& header() const { return header_; }
  /// CheckpointError when there is no such tensor.
  const TensorEntry& entry(const std::string& name) const;
  /// The tensor's bytes, valid as long as this object.
  std::span<const std::byte> bytes(const std::string& name) const;

 private:
  base::MappedFile map_;
  SafetensorsHeader header_;
};

}  // namespace trireme::checkpoint
