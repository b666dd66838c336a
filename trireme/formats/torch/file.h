// PyTorch's own files: `.pth`, `.pt` and `.bin` zip pickles as torch.save writes and torch.load(weights_only=True)
// opens them. No code of a file is run (pickle.h).
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/formats/torch/archive.h"
#include "trireme/formats/torch/writer.h"
#include "trireme/formats/vocabulary.h"

namespace trireme::formats {

/// A tensor in an archive. Its name joins the keys of nested dicts and lists with dots: "layers.0.weight".
struct FlatTensor {
  std::string name;
  StridedView view;
};

/// The tensors of an archive in the order of its pickle: those of {"model": ...}, {"state_dict": ...},
/// {"model_state_dict": ...} or {"module": ...} if there is such a dict, else all.
///
/// `left_out` gets the names of values that are no tensors, numbers or texts, such as numpy's arrays.
/// Errors    CheckpointError: two equal names, dicts nested deeper than 32
std::vector<FlatTensor> flatten_tensors(const TorchArchive& archive, ReadBudget& budget,
                                        std::vector<std::string>* left_out = nullptr);

class TorchFileSource : public TensorSource {
 public:
  /// Opens a file, or a folder with pytorch_model.bin.index.json and its files, or a folder with one pytorch_model.bin.
  ///
  /// Cost      maps the files; reads directories and pickles
  /// Errors    CheckpointError, base::FileError
  explicit TorchFileSource(const std::filesystem::path& path);

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  void read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const override;
  /// Names of values that are no tensors, numbers or texts.
  const std::vector<std::string>& left_out() const { return left_out_; }

 private:
  void open(const std::filesystem::path& file, const std::set<std::string>* wanted);

  std::vector<base::MappedFile> files_;
  std::vector<TensorSpec> tensors_;
  std::vector<StridedView> views_;
  std::vector<size_t> file_of_;
  std::vector<std::string> left_out_;
};

/// Cost      writes each byte once; no buffer beyond 1 MiB
class TorchFileSink : public TensorSink {
 public:
  /// Creates the file at its full size.
  /// Errors    CheckpointError for a name given twice, base::FileError (also when it exists, or the disk is full)
  TorchFileSink(const std::filesystem::path& path, std::vector<TensorSpec> tensors);

  void write(size_t tensor, int64_t begin, int64_t end, const void* data, Dtype dtype) override;
  void finish() override;

 private:
  std::filesystem::path path_;
  std::vector<TensorSpec> tensors_;
  base::FileDescriptor file_;
  TorchArchiveWriter archive_;
};

}  // namespace trireme::formats
