// Tensors in a GGUF file: read piece by piece with blocks dequantised on the way, and written the same way.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/checkpoint/gguf.h"
#include "trireme/checkpoint/tensor_source.h"

namespace trireme::checkpoint {

/// A file's tensors under its own names. Data are read, not mapped: nothing of them stays in memory.
class GgufSource : public TensorSource {
 public:
  explicit GgufSource(std::shared_ptr<const GgufFile> file);

  const std::vector<SourceTensor>& tensors() const override { return tensors_; }
  void read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const override;

 private:
  std::shared_ptr<const GgufFile> file_;
  base::FileDescriptor descriptor_;
  std::vector<SourceTensor> tensors_;
};

/// Key-value pairs in the form the file has them.
class GgufMetadata {
 public:
  void add(std::string_view key, uint32_t value);
  void add(std::string_view key, float value);
  void add(std::string_view key, bool value);
  void add(std::string_view key, std::string_view value);
  void add(std::string_view key, const char* value) { add(key, std::string_view(value)); }
  void add(std::string_view key, std::span<const std::string> values);
  void add(std::string_view key, std::span<const int32_t> values);
  void add(std::string_view key, std::span<const float> values);

  uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void begin(std::string_view key, GgufKind kind);
  void begin_array(std::string_view key, GgufKind kind, uint64_t count);

  uint64_t count_ = 0;
  std::string bytes_;
};

/// A tensor to be written.
struct GgufTarget {
  std::string name;
  std::vector<int64_t> shape;
  GgufType type = GgufType::f32;  ///< F32, F16, BF16 or Q8_0
};

/// Writes one file of version 3, its space reserved first.
class GgufSink : public TensorSink {
 public:
  /// Errors    base::FileError; CheckpointError when rows do not divide into blocks
  GgufSink(const std::filesystem::path& path, const GgufMetadata& metadata, std::vector<GgufTarget> tensors);

  /// Bytes of the file, known before it is made.
  static int64_t file_bytes(const GgufMetadata& metadata, std::span<const GgufTarget> tensors);

  void write(size_t tensor, int64_t begin, int64_t end, const void* data, Dtype dtype) override;
  void finish() override;

 private:
  std::filesystem::path path_;
  base::FileDescriptor file_;
  std::vector<GgufTarget> tensors_;
  std::vector<int64_t> begins_;
};

}  // namespace trireme::checkpoint
