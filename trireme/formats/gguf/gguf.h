// The GGUF format: "GGUF", a version, metadata as typed key-value pairs, a table of tensors, then their data.
//
// A file is untrusted input: every count, length and offset is compared with the file's size before anything is
// allocated for it. A broken rule is a CheckpointError naming the file and the key or tensor. Arrays (a vocabulary may
// have a million items) stay in the file and are decoded on request. Trireme reads versions 2 and 3, little-endian.
// Source: PyPI gguf 0.19.0 (gguf_reader.py, constants.py); tests compare with it too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/formats/gguf/blocks.h"

namespace trireme::formats {

/// The types of metadata values, in the order of their numbers in the file.
enum class GgufKind : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

std::string_view gguf_kind_name(GgufKind kind);
size_t gguf_kind_bytes(GgufKind kind);  ///< 0 for texts and arrays

/// An array of items of one type. It is checked that the bytes lie within the file.
struct GgufArray {
  GgufKind kind = GgufKind::u8;  ///< never `array`
  int64_t count = 0;
  std::span<const std::byte> bytes;
};

/// A metadata value. Numbers are widened to 64 bits; text and arrays point into the file.
struct GgufValue {
  GgufKind kind = GgufKind::u8;
  std::variant<int64_t, uint64_t, double, bool, std::string_view, GgufArray> value;
};

/// A number or bool at `bytes`.
GgufValue gguf_scalar(GgufKind kind, const std::byte* bytes);

/// An entry of the table of tensors.
struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  ///< in LibTorch's order; the file has the reverse order
  GgufType type = GgufType::f32;
  int64_t elements = 0;
  int64_t begin = 0;  ///< first byte, from the start of the file
  int64_t end = 0;  ///< one past the last
};

/// Everything before the data. It points into the parsed bytes, which must outlive it.
struct GgufHeader {
  std::string path;  ///< for messages
  uint32_t version = 0;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<GgufTensor> tensors;
  int64_t data_begin = 0;

  bool has(std::string_view key) const { return metadata.find(key) != metadata.end(); }

  // These return nothing if the key is absent, and throw a CheckpointError naming it if its value has another type.
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;  ///< takes whole numbers too
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  std::optional<std::vector<std::string>> texts(std::string_view key) const;
  std::optional<std::vector<int64_t>> integers(std::string_view key) const;
  std::optional<std::vector<float>> numbers(std::string_view key) const;
};

/// Checks and indexes a whole file in (mapped) memory; `path` is for messages.
///
/// Cost      reads metadata and table once; allocates about 200 bytes a key and a tensor
/// Errors    CheckpointError: another version or byte order, anything beyond the file's end, keys or tensors named
///           twice, tensors that overlap, types that Trireme does not read (the message says what to do)
GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& path);

}  // namespace trireme::formats
