// Reads and writes the tensors of a GGUF file piece by piece; blocks are dequantised and quantised on the way.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/formats/gguf/gguf.h"
#include "trireme/formats/vocabulary.h"

namespace trireme::formats {

/// The tensors of a GGUF file under GGUF's names. Tensor data are read, not mapped, so that they do not stay in memory.
class GgufSource : public TensorSource {
 public:
  explicit GgufSource(const std::filesystem::path& path);

  const GgufHeader& header() const { return header_; }

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  void read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const override;
  base::BlockFormat blocks_of(size_t tensor) const override;
  void read_blocks(size_t tensor, int64_t begin, int64_t end, std::byte* to) const override;

 private:
  base::MappedFile map_;
  GgufHeader header_;
  base::FileDescriptor descriptor_;
  std::vector<TensorSpec> tensors_;
};

/// Builds the key-value pairs of a new file as the bytes that the file holds.
class GgufMetadata {
 public:
  using Scalar = std::variant<uint32_t, float, bool, std::string_view>;
  void add(std::string_view key, Scalar value);
  void add(std::string_view key, std::span<const std::string> values);
  void add(std::string_view key, std::span<const int32_t> values);
  void add(std::string_view key, std::span<const float> values);

  uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void begin(std::string_view key, GgufKind kind);
  template <class T>
  void add_list(std::string_view key, GgufKind kind, std::span<const T> values);

  uint64_t count_ = 0;
  std::string bytes_;
};

/// A tensor to be written.
struct GgufTarget {
  std::string name;
  std::vector<int64_t> shape;
  GgufType type = GgufType::f32;  ///< F32, F16, BF16, Q8_0 or Q4_0
};

/// Writes a file of version 3. It reserves the file's space first.
class GgufSink : public TensorSink {
 public:
  /// Errors    base::FileError; CheckpointError when rows do not divide into blocks
  GgufSink(const std::filesystem::path& path, const GgufMetadata& metadata, std::vector<GgufTarget> tensors);

  /// The size that the file will have.
  static int64_t file_bytes(const GgufMetadata& metadata, std::span<const GgufTarget> tensors);

  void write(size_t tensor, int64_t begin, int64_t end, const void* data, Dtype dtype) override;
  void finish() override;

 private:
  std::filesystem::path path_;
  base::FileDescriptor file_;
  std::vector<GgufTarget> tensors_;
  std::vector<int64_t> begins_;
};

}  // namespace trireme::formats
