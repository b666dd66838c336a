// The GGUF format: "GGUF", a version, metadata as typed key-value pairs, a table of tensors, then their data.
//
// A file is untrusted input: every count, length and offset is compared with the bytes that are there before anything
// is allocated for it, and a broken rule is a CheckpointError naming the file and the key or tensor. Arrays (a
// vocabulary has a million items) stay where they lie in the file and are decoded when somebody asks. Versions 2 and 3,
// little-endian. Source: PyPI gguf 0.19.0 (gguf_reader.py, constants.py), and its judge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/checkpoint/gguf_blocks.h"

namespace trireme::checkpoint {

/// The numbers of the types of values in metadata.
enum class GgufKind : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

std::string_view gguf_kind_name(GgufKind kind);

/// Items of one type, checked to lie within the file.
struct GgufArray {
  GgufKind kind = GgufKind::u8;  ///< never array
  int64_t count = 0;
  std::span<const std::byte> bytes;
};

/// Numbers as wide as they come; text and arrays point into the file.
struct GgufValue {
  GgufKind kind = GgufKind::u8;
  std::variant<int64_t, uint64_t, double, bool, std::string_view, GgufArray> value;
};

/// A tensor as the table has it.
struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  ///< row-major as in LibTorch: the reverse of the file's
  GgufType type = GgufType::f32;
  int64_t elements = 0;
  int64_t begin = 0;  ///< first byte, from the start of the file
  int64_t end = 0;  ///< one past the last
};

/// Everything before the data. Views into the bytes it was parsed from, which must outlive it.
struct GgufHeader {
  std::string path;  ///< for messages
  uint32_t version = 0;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<GgufTensor> tensors;
  int64_t data_begin = 0;

  bool has(std::string_view key) const { return metadata.find(key) != metadata.end(); }

  // Each of these is nothing where the key is absent, and a CheckpointError naming the key where its value is of
  // another kind.
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;  ///< whole numbers too
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  std::optional<std::vector<std::string>> texts(std::string_view key) const;
  std::optional<std::vector<int64_t>> integers(std::string_view key) const;
  std::optional<std::vector<float>> numbers(std::string_view key) const;
};

/// Checks and indexes a whole file at hand; `path` is for messages.
///
/// Cost      reads metadata and table once; allocates about 200 bytes a key and a tensor
/// Errors    CheckpointError: another version or byte order, anything that leaves the file, keys or tensors named
/// twice,
///           tensors that overlap, types that Trireme does not read (with the way out)
GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& path);

/// A file mapped into memory with its header.
class GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& path);
  const GgufHeader& header() const { return header_; }

 private:
  base::MappedFile map_;
  GgufHeader header_;
};

/// True for well-formed UTF-8.
bool is_utf8(std::string_view text);

}  // namespace trireme::checkpoint
