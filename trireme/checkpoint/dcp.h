// PyTorch's distributed checkpoints (torch.distributed.checkpoint): a folder with a `.metadata` pickle and files
// `__0_0.distcp`, whose items are torch.save archives of one piece ("chunk") of a tensor each. A chunk is a box with
// an offset in every dimension; any sharding can be read as whole tensors. Items that are not tensors (learning rates,
// step counts) are pickled Python objects and are not offered.
// Source: torch/distributed/checkpoint/metadata.py, filesystem.py.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/checkpoint/pickle.h"
#include "trireme/checkpoint/tensor_source.h"
#include "trireme/checkpoint/torch_archive.h"
#include "trireme/checkpoint/torch_writer.h"

namespace trireme::checkpoint {

/// Of the pickle in the folder, and Python's name of the module whose types it holds.
inline constexpr const char* kDcpMetadataName = ".metadata";
inline constexpr const char* kDcpModule = "torch.distributed.checkpoint.metadata";

/// One stored box of a tensor.
struct DcpChunk {
  std::vector<int64_t> offsets;
  std::vector<int64_t> sizes;
  std::string file;  ///< plain name in the folder
  int64_t begin = 0;
  int64_t bytes = 0;
};

struct DcpTensor {
  SourceTensor tensor;
  std::vector<DcpChunk> chunks;  ///< by offsets; together exactly the tensor
};

/// The tensors that a `.metadata` pickle describes: those below "model" (or "state_dict", "model_state_dict",
/// "module") where the saved dict had such a part, else all.
///
/// Errors    CheckpointError naming the tensor: chunks that leave it, overlap or do not fill it, a file outside the
///           folder, a transformed (compressed) item, an unknown dtype
std::vector<DcpTensor> parse_dcp_metadata(std::string bytes, ReadBudget& budget);

class DcpSource : public TensorSource {
 public:
  /// Cost      reads `.metadata`; maps the files it names
  /// Errors    CheckpointError, base::FileError
  explicit DcpSource(const std::filesystem::path& folder);

  const std::vector<SourceTensor>& tensors() const override { return tensors_; }
  /// Errors    CheckpointError also when an item is not the archive of its chunk
  void read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const override;

 private:
  StridedView open_chunk(size_t tensor, size_t chunk) const;

  std::filesystem::path folder_;
  std::map<std::string, base::MappedFile> files_;
  std::vector<SourceTensor> tensors_;
  std::vector<std::vector<DcpChunk>> chunks_;
  /// Reads come in order, so the view of the last chunk is the one most often asked for.
  mutable std::mutex mutex_;
  mutable std::pair<size_t, size_t> opened_{SIZE_MAX, SIZE_MAX};
  mutable StridedView view_;
};

struct DcpOptions {
  std::string wrapper;  ///< "model" for {"model": {...}}; empty for a bare dict
};

/// Writes `__0_0.distcp` with each tensor whole, then `.metadata`.
class DcpSink : public TensorSink {
 public:
  /// Makes the data file at its full size; `folder` exists.
  /// Errors    CheckpointError for a name given twice, base::FileError
  DcpSink(const std::filesystem::path& folder, std::vector<SourceTensor> tensors, DcpOptions options = {});

  void write(size_t tensor, int64_t begin, int64_t end, const void* data, Dtype dtype) override;
  void finish() override;

 private:
  std::filesystem::path folder_;
  std::vector<SourceTensor> tensors_;
  DcpOptions options_;
  std::vector<TorchArchiveWriter> archives_;
  std::vector<int64_t> begins_;
  base::FileDescriptor file_;
};

}  // namespace trireme::checkpoint
