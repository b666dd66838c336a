// Writes one torch.save archive into an open file, from any of its bytes on, when its tensors come one after the
// other: everything but the checksums is laid out beforehand.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/checkpoint/pickle.h"
#include "trireme/checkpoint/tensor_source.h"
#include "trireme/checkpoint/zip.h"

namespace trireme::checkpoint {

/// Appends `_rebuild_tensor_v2(...)` or, for types without a storage class, `_rebuild_tensor_v3(...)`: a contiguous
/// tensor that fills storage `key`.
void write_tensor(PickleWriter& pickle, const SourceTensor& tensor, size_t key);

class TorchArchiveWriter {
 public:
  /// `pickle` names storage i for tensor i; `first_byte` is where the archive begins in its file.
  TorchArchiveWriter(std::string pickle, std::span<const SourceTensor> tensors, int64_t first_byte = 0);

  int64_t bytes() const { return layout_.bytes(); }

  /// Elements of storage `tensor` from `begin` on, in order.
  void write(const base::FileDescriptor& file, const std::filesystem::path& path, size_t tensor,
             const SourceTensor& spec, int64_t begin, int64_t end, const void* data, Dtype dtype);
  /// Headers, pickle and directory: what is not tensors. All tensors have been written.
  void finish(const base::FileDescriptor& file, const std::filesystem::path& path) const;

 private:
  int64_t first_byte_;
  std::vector<std::string> small_;  ///< contents of the records before and behind the storages
  size_t first_storage_ = 0;        ///< record of storage 0
  ZipLayout layout_;
  std::vector<uint32_t> crc32_;     ///< of each record so far
};

}  // namespace trireme::checkpoint
