// The safetensors format: the header's length n (8 bytes, little-endian), n bytes of JSON padded with spaces to a
// multiple of 8, then the tensors without holes, row-major, little-endian.
//
// A header is untrusted input: every rule of the format is checked before an offset is used. A broken rule is a
// CheckpointError naming the file and the tensor. The structs here count offsets from the start of the file, as
// readers and writers of byte ranges need them.
// Source: github.com/huggingface/safetensors, README "Format".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/dtype.h"

namespace trireme::checkpoint {

/// The longest header that readers of the format accept.
constexpr int64_t kMaxHeaderBytes = 100'000'000;

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
/// Errors    CheckpointError: a name that is not UTF-8, is reserved or comes twice; a header that is too long
std::string write_header(std::span<const TensorSpec> tensors, const std::map<std::string, std::string>& metadata);

}  // namespace trireme::checkpoint
