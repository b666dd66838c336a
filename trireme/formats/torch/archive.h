// TorchArchive: one torch.save archive in mapped memory, with its pickle, and tensors as views of its storages. A
// `.pth` file is such an archive, and so is every item of a distributed checkpoint.
//
// The archive holds `NAME/data.pkl`, whose tensors refer to storages by key, `NAME/data/KEY` with a storage's bytes,
// and `NAME/byteorder`. Before PyTorch 1.6, torch.save wrote a row of pickles instead: a magic number, a version, the
// machine's byte order, the object, the keys of its storages; then the storages, each behind its length.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/formats/torch/pickle.h"
#include "trireme/formats/torch/zip.h"
#include "trireme/formats/vocabulary.h"

namespace trireme::formats {

/// A tensor whose element (i, j) lies at data[i * stride[0] + j * stride[1]], in elements.
struct StridedView {
  const std::byte* data = nullptr;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  std::vector<int64_t> stride;
};

/// Reads elements [begin, end) of `view`, in row-major order, into `data` as `dtype`. The dtypes must be convertible().
void read_strided(const StridedView& view, int64_t begin, int64_t end, void* data, Dtype dtype);

/// The dtype of torch.float32 or torch.FloatStorage; nothing for other names and for nullptr.
std::optional<Dtype> torch_dtype(const PickleGlobal* global);

/// "FloatStorage"; empty for types that PyTorch stores untyped (unsigned beyond 8 bits, 8-bit floats).
std::string_view torch_storage_name(Dtype dtype);

/// Errors    CheckpointError if the tensor cannot be read as `dtype`
void check_convertible(const TensorSpec& tensor, Dtype dtype, const std::string& path);

/// Keys under which a saved dict may hold the model's state: {"model": {...}, "optimizer": {...}}.
inline constexpr std::string_view kTorchWrappers[] = {"model", "state_dict", "model_state_dict", "module"};

/// Whether a file that begins with these bytes (16 suffice) is one of torch.save's, of either kind.
bool looks_like_torch_file(std::string_view head);

class TorchArchive {
 public:
  /// `archive` must outlive this object; `budget` bounds memory and names the file in messages.
  ///
  /// Errors    CheckpointError: neither kind of file, a TorchScript archive, big-endian storages, and what
  ///           read_zip_directory() and Pickle refuse
  TorchArchive(std::span<const std::byte> archive, ReadBudget& budget);

  const Pickle& pickle() const { return *pickle_; }

  /// The value as a tensor, or nothing if it is neither tensor nor parameter.
  ///
  /// Errors    CheckpointError naming `tensor`: a storage that is missing or too short, a view that reaches beyond its
  ///           storage, an unknown dtype
  std::optional<StridedView> view(PickleId id, const std::string& tensor) const;

 private:
  void open_zip(ReadBudget& budget);
  void open_row_of_pickles(ReadBudget& budget);
  std::span<const std::byte> find(const std::string& name) const;
  std::span<const std::byte> storage(const std::string& key) const;
  StridedView make_view(std::span<const PickleId> arguments, const std::string& tensor) const;
  void check_bounds(const StridedView& view, int64_t offset, int64_t elements, const std::string& tensor) const;
  [[noreturn]] void fail(const std::string& problem, const std::string& tensor = "") const;

  std::span<const std::byte> archive_;
  std::string path_;
  std::vector<ZipEntry> entries_;  ///< by name
  std::string top_;  ///< "archive/"
  std::map<std::string, std::span<const std::byte>, std::less<>> storages_;  ///< of a row of pickles, by key
  std::unique_ptr<Pickle> pickle_;
};

}  // namespace trireme::formats
