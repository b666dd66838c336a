// PyTorch's distributed checkpoints (torch.distributed.checkpoint): a folder with a `.metadata` pickle and files
// `__0_0.distcp`. Each item of a file is a torch.save archive of one piece ("chunk") of a tensor. A chunk has an offset
// and a size in every dimension, so any sharding can be read as whole tensors. Items that are not tensors (learning
// rates, step counts) are pickled Python objects and are left out.
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
#include "trireme/formats/torch/archive.h"
#include "trireme/formats/torch/pickle.h"
#include "trireme/formats/torch/writer.h"
#include "trireme/formats/vocabulary.h"

namespace trireme::formats {

/// The name of the pickle in the folder, and the Python module of its types.
inline constexpr const char* kDcpMetadataName = ".metadata";
inline constexpr const char* kDcpModule = "torch.distributed.checkpoint.metadata";

/// One stored chunk of a tensor.
struct DcpChunk {
  std::vector<int64_t> offsets;
  std::vector<int64_t> sizes;
  std::string file;  ///< plain name in the folder
  int64_t begin = 0;
  int64_t bytes = 0;
};

struct DcpTensor {
  TensorSpec tensor;
  std::vector<DcpChunk> chunks;  ///< sorted by offsets; together they fill the tensor exactly
};

/// The tensors that a `.metadata` pickle describes: those below "model" (or "state_dict", "model_state_dict",
/// "module") if the saved dict had such a part, else all.
///
/// Errors    CheckpointError naming the tensor: chunks that reach beyond it, overlap or do not fill it, a file outside
///           the folder, a transformed (compressed) item, an unknown dtype
std::vector<DcpTensor> parse_dcp_metadata(std::string bytes, ReadBudget& budget);

class DcpSource : public TensorSource {
 public:
  /// Cost      reads `.metadata`; maps the files it names
  /// Errors    CheckpointError, base::FileError
  explicit DcpSource(const std::filesystem::path& folder);

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  /// Errors    as TensorSource::read; CheckpointError also if an item is not the archive of its chunk
  void read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const override;

 private:
  StridedView open_chunk(size_t tensor, size_t chunk) const;

  std::filesystem::path folder_;
  std::map<std::string, base::MappedFile> files_;
  std::vector<TensorSpec> tensors_;
  std::vector<std::vector<DcpChunk>> chunks_;
  /// Reads come in order, so the view of the last chunk is kept.
  mutable std::mutex mutex_;
  mutable std::pair<size_t, size_t> opened_{SIZE_MAX, SIZE_MAX};
  mutable StridedView view_;
};

/// Writes `__0_0.distcp` with one chunk for each tensor, then `.metadata`.
class DcpSink : public TensorSink {
 public:
  /// Creates the data file at its full size in an existing `folder`.
  /// Errors    CheckpointError for a name given twice, base::FileError
  DcpSink(const std::filesystem::path& folder, std::vector<TensorSpec> tensors);

  void write(size_t tensor, int64_t begin, int64_t end, const void* data, Dtype dtype) override;
  void finish() override;

 private:
  std::filesystem::path folder_;
  std::vector<TensorSpec> tensors_;
  std::vector<TorchArchiveWriter> archives_;
  std::vector<int64_t> begins_;
  base::FileDescriptor file_;
};

}  // namespace trireme::formats
