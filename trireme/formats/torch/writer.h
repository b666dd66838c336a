// Writes one torch.save archive into an open file, at any offset, from tensors that arrive one after the other. All but
// the checksums is planned in advance.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/formats/torch/pickle.h"
#include "trireme/formats/torch/zip.h"
#include "trireme/formats/vocabulary.h"

namespace trireme::formats {

/// Appends the call that rebuilds a contiguous tensor from the whole storage `key`: `_rebuild_tensor_v2(...)`, or
/// `_rebuild_tensor_v3(...)` for dtypes without a storage class.
void write_tensor(PickleWriter& pickle, const TensorSpec& tensor, size_t key);

class TorchArchiveWriter {
 public:
  /// `pickle` names storage i for tensor i; `first_byte` is where the archive begins in its file.
  TorchArchiveWriter(std::string pickle, std::span<const TensorSpec> tensors, int64_t first_byte = 0);

  int64_t bytes() const { return layout_.bytes(); }

  /// Writes elements [begin, end) of storage `tensor`; calls come in order.
  void write(const base::FileDescriptor& file, const std::filesystem::path& path, size_t tensor, const TensorSpec& spec,
             int64_t begin, int64_t end, const void* data, Dtype dtype);
  /// Writes headers, pickle and directory, after all tensors.
  void finish(const base::FileDescriptor& file, const std::filesystem::path& path) const;

 private:
  int64_t first_byte_;
  std::vector<std::string> small_;  ///< contents of the records before and behind the storages
  size_t first_storage_ = 0;  ///< record of storage 0
  ZipLayout layout_;
  std::vector<uint32_t> crc32_;  ///< of each record so far
};

}  // namespace trireme::formats
