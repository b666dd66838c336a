// One torch.save archive in memory (mapped): its pickle, and tensors as views of its storages. A `.pth` file is one,
// and so is every item of a distributed checkpoint.
//
// The archive holds `NAME/data.pkl`, whose tensors name their storages, `NAME/data/KEY` with the storages' bytes, and
// `NAME/byteorder`.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/checkpoint/dtype.h"
#include "trireme/checkpoint/pickle.h"
#include "trireme/checkpoint/zip.h"

namespace trireme::checkpoint {

/// A tensor whose element (i, j) lies at data[i * stride[0] + j * stride[1]], in elements.
struct StridedView {
  const std::byte* data = nullptr;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  std::vector<int64_t> stride;
};

/// Elements [begin, end) of the row-major order of `view`, as `dtype`. The dtypes must be convertible().
void read_strided(const StridedView& view, int64_t begin, int64_t end, void* data, Dtype dtype);

/// Names under which a saved dict may hold the model's own: {"model": {...}, "optimizer": {...}}.
inline constexpr std::string_view kTorchWrappers[] = {"model", "state_dict", "model_state_dict", "module"};

class TorchArchive {
 public:
  /// `archive` must outlive this object; `budget` bounds memory and names the file in messages.
  ///
  /// Errors    CheckpointError: an old file that is no zip archive, a TorchScript archive, big-endian storages, and
  ///           all that read_zip_directory() and Pickle refuse
  TorchArchive(std::span<const std::byte> archive, ReadBudget& budget);

  const Pickle& pickle() const { return *pickle_; }

  /// The tensor or parameter that the value is, or nothing when it is something else.
  ///
  /// Errors    CheckpointError naming `tensor`: a storage that is not there or shorter than it says, a view that leaves
  ///           its storage, an unknown dtype
  std::optional<StridedView> view(PickleId id, const std::string& tensor) const;

 private:
  std::span<const std::byte> find(const std::string& name) const;
  StridedView make_view(std::span<const PickleId> arguments, const std::string& tensor) const;
  void check_bounds(const StridedView& view, int64_t offset, int64_t elements, const std::string& tensor) const;
  [[noreturn]] void fail(const std::string& problem, const std::string& tensor = "") const;

  std::span<const std::byte> archive_;
  std::string path_;
  std::vector<ZipEntry> entries_;  ///< by name
  std::string top_;  ///< "archive/"
  std::unique_ptr<Pickle> pickle_;
};

}  // namespace trireme::checkpoint
