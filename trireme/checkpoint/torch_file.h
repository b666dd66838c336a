// PyTorch's own files: `.pth`, `.pt` and `.bin` zip pickles as torch.save writes and torch.load(weights_only=True)
// opens them. No code of a file is run (pickle.h).
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/checkpoint/tensor_source.h"
#include "trireme/checkpoint/torch_archive.h"
#include "trireme/checkpoint/torch_writer.h"

namespace trireme::checkpoint {

/// A tensor somewhere in an archive; nested dicts and lists are joined by dots: "layers.0.weight".
struct FlatTensor {
  std::string name;
  StridedView view;
};

/// The tensors of an archive in the order of its pickle: those of {"model": ...}, {"state_dict": ...},
/// {"model_state_dict": ...} or {"module": ...} where there is such a dict, else all.
///
/// Errors    CheckpointError: a name that is there twice, dicts nested deeper than 32
/// `left_out`: takes the names of values that are neither tensors nor numbers or texts, such as numpy's arrays.
std::vector<FlatTensor> flatten_tensors(const TorchArchive& archive, ReadBudget& budget,
                                        std::vector<std::string>* left_out = nullptr);

/// {"weight_map": {tensor: file}} of a Hugging Face index; `path` is for messages.
///
/// Errors    CheckpointError: broken JSON, or a file that is not a plain name in the same folder
std::vector<std::pair<std::string, std::string>> parse_weight_index(const std::string& text, const std::string& path);

class TorchFileSource : public TensorSource {
 public:
  /// A file; or a folder with pytorch_model.bin.index.json and its files, or with one pytorch_model.bin.
  ///
  /// Cost      maps the files; reads directories and pickles
  /// Errors    CheckpointError, base::FileError
  explicit TorchFileSource(const std::filesystem::path& path);

  const std::vector<SourceTensor>& tensors() const override { return tensors_; }
  void read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const override;
  /// Names of values that are neither tensors nor numbers or texts.
  const std::vector<std::string>& left_out() const { return left_out_; }

 private:
  void open(const std::filesystem::path& file, const std::set<std::string>* wanted);

  std::vector<base::MappedFile> files_;
  std::vector<SourceTensor> tensors_;
  std::vector<StridedView> views_;
  std::vector<size_t> file_of_;
  std::vector<std::string> left_out_;
};

struct TorchFileOptions {
  std::string wrapper;  ///< "model" for {"model": {...}}; empty for a bare dict
  /// Further names of tensors, which share their storage: {"lm_head.weight", "model.embed_tokens.weight"}.
  std::vector<std::pair<std::string, std::string>> tied;
};

/// Cost      writes each byte once; no buffer beyond 1 MiB
class TorchFileSink : public TensorSink {
 public:
  /// Makes the new file at its full size.
  /// Errors    CheckpointError for a name given twice, base::FileError (also when it exists, or the disk is full)
  TorchFileSink(const std::filesystem::path& path, std::vector<SourceTensor> tensors, TorchFileOptions options = {});

  void write(size_t tensor, int64_t begin, int64_t end, const void* data, Dtype dtype) override;
  void finish() override;

 private:
  std::filesystem::path path_;
  std::vector<SourceTensor> tensors_;
  base::FileDescriptor file_;
  TorchArchiveWriter archive_;
};

}  // namespace trireme::checkpoint
