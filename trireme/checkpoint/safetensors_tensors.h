// The weights of a Hugging Face folder as a TensorSource, and a TensorSink that writes such files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/checkpoint/layout.h"
#include "trireme/checkpoint/load.h"
#include "trireme/checkpoint/tensor_source.h"

namespace trireme::checkpoint {

/// The weights of an open checkpoint, without its optimizer files. Reads are verified if it has a manifest.
class SafetensorsSource : public TensorSource {
 public:
  explicit SafetensorsSource(Checkpoint checkpoint);

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  void read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const override;

  const Checkpoint& checkpoint() const { return checkpoint_; }
  int64_t num_optimizer_files() const;

 private:
  Checkpoint checkpoint_;
  std::vector<TensorSpec> tensors_;
};

/// Writes the files that layout.h plans, and their index.
class SafetensorsSink : public TensorSink {
 public:
  /// Creates the files in an existing `folder` and reserves their space. Errors    base::FileError
  SafetensorsSink(const std::filesystem::path& folder, const std::vector<TensorSpec>& tensors, int64_t max_shard_bytes);

  /// Bytes of all files.
  static int64_t total_bytes(const std::vector<TensorSpec>& tensors, int64_t max_shard_bytes);

  void write(size_t tensor, int64_t begin, int64_t end, const void* data, Dtype dtype) override;
  void finish() override;

 private:
  std::filesystem::path folder_;
  Layout layout_;
  std::vector<base::FileDescriptor> files_;
  std::vector<TensorPlace> places_;
};

}  // namespace trireme::checkpoint
