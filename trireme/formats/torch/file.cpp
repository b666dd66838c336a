#include "trireme/formats/torch/file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/disk.h"
#include "trireme/checkpoint/layout.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme::formats {
namespace {

constexpr const char* kIndexName = "pytorch_model.bin.index.json";
constexpr const char* kSingleName = "pytorch_model.bin";
constexpr int kMaxDepth = 32;

/// Walks dicts and lists. A shared value is visited once for each of its owners; the budget bounds how often.
class Flattener {
 public:
  Flattener(const TorchArchive& archive, ReadBudget& budget) : archive_(archive), budget_(budget) {}

  void walk(PickleId id, const std::string& name, int depth) {
    if (depth > kMaxDepth) fail(fmt::format("its dicts are nested deeper than {}, at '{}'", kMaxDepth, short_(name)));
    budget_.take(std::ssize(name) + 64);
    const Pickle& pickle = archive_.pickle();
    const std::span<const PickleId> items = pickle.items(id);
    if (!pickle.is_dict(id)) {
      for (size_t i = 0; i < items.size(); ++i) walk(items[i], joined(name, std::to_string(i)), depth + 1);
    } else {
      for (size_t i = 0; i < items.size(); i += 2)
        if (const auto key = key_text(items[i])) walk(items[i + 1], joined(name, *key), depth + 1);
    }
    if (items.empty()) add(id, name);
  }

  std::vector<FlatTensor> take() { return std::move(tensors_); }
  std::vector<std::string> take_left_out() { return std::move(left_out_); }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw CheckpointError(fmt::format("{} cannot be read as named tensors: {}", budget_.path(), problem),
                          budget_.path());
  }
  static std::string short_(const std::string& name) { return base::shortened(name, 200); }

  static std::string joined(const std::string& name, std::string_view key) {
    return name.empty() ? std::string(key) : fmt::format("{}.{}", name, key);
  }

  std::optional<std::string> key_text(PickleId id) const {
    if (const auto text = archive_.pickle().text(id)) return std::string(*text);
    if (const auto number = archive_.pickle().integer(id)) return std::to_string(*number);
    return std::nullopt;
  }

  void add(PickleId id, const std::string& name) {
    std::optional<StridedView> view = archive_.view(id, name);
    if (!view) {
      if (std::holds_alternative<PickleCall>(archive_.pickle().at(id))) left_out_.push_back(name);
      return;
    }
    budget_.take(static_cast<int64_t>(sizeof(FlatTensor) + 2 * name.size() + view->shape.size() * 16) + 64);
    if (!names_.insert(name).second) fail(fmt::format("two of its tensors are called '{}'", short_(name)));
    tensors_.push_back({.name = name, .view = std::move(*view)});
  }

  const TorchArchive& archive_;
  ReadBudget& budget_;
  std::vector<FlatTensor> tensors_;
  std::vector<std::string> left_out_;
  std::set<std::string> names_;
};

}  // namespace

std::vector<FlatTensor> flatten_tensors(const TorchArchive& archive, ReadBudget& budget,
                                        std::vector<std::string>* left_out) {
  const Pickle& pickle = archive.pickle();
  PickleId root = pickle.root();
  for (const std::string_view wrapper : kTorchWrappers) {
    const PickleId inner = pickle.find(root, wrapper);
    if (!pickle.is_dict(inner)) continue;
    root = inner;
    break;
  }
  Flattener flattener(archive, budget);
  flattener.walk(root, "", 0);
  if (left_out != nullptr) *left_out = flattener.take_left_out();
  return flattener.take();
}

TorchFileSource::TorchFileSource(const std::filesystem::path& path) {
  const bool is_folder = std::filesystem::is_directory(path);
  const auto index = is_folder ? checkpoint::read_weight_index(path, kSingleName) : std::nullopt;
  if (!index) {
    open(is_folder ? path / kSingleName : path, nullptr);
    return;
  }
  std::map<std::string, std::set<std::string>> wanted;
  for (const auto& [tensor, file] : *index) wanted[file].insert(tensor);
  for (const auto& [file, names] : wanted) open(path / file, &names);
}

void TorchFileSource::open(const std::filesystem::path& file, const std::set<std::string>* wanted) {
  files_.emplace_back(file);
  ReadBudget budget(files_.back().size_bytes(), file.string());
  const TorchArchive archive(files_.back().bytes(), budget);
  size_t found = 0;
  std::vector<std::string> left_out;
  std::vector<FlatTensor> flat = flatten_tensors(archive, budget, &left_out);
  left_out_.insert(left_out_.end(), left_out.begin(), left_out.end());
  for (FlatTensor& tensor : flat) {
    if (wanted && !wanted->contains(tensor.name)) continue;
    ++found;
    tensors_.push_back({.name = tensor.name, .shape = tensor.view.shape, .dtype = tensor.view.dtype});
    views_.push_back(std::move(tensor.view));
    file_of_.push_back(files_.size() - 1);
  }
  if (!wanted || found == wanted->size()) return;
  for (const std::string& name : *wanted) {
    if (std::any_of(tensors_.begin(), tensors_.end(), [&](const TensorSpec& tensor) { return tensor.name == name; }))
      continue;
    throw CheckpointError(fmt::format("{} holds no tensor '{}', though {} says so", file.string(), name, kIndexName),
                          file.string(), name);
  }
}

void TorchFileSource::read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const {
  check_convertible(tensors_[tensor], dtype, files_[file_of_[tensor]].path().string());
  read_strided(views_[tensor], begin, end, data, dtype);
}

namespace {

std::string state_dict_pickle(const std::vector<TensorSpec>& tensors, const std::string& path) {
  std::set<std::string> names;
  PickleWriter pickle;
  pickle.empty_dict().mark();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string& name = tensors[i].name;
    if (!names.insert(name).second)
      throw CheckpointError(fmt::format("{} would hold two tensors called '{}'", path, name), path, name);
    write_tensor(pickle.text(name), tensors[i], i);
  }
  return pickle.set_items().finish();
}

}  // namespace

TorchFileSink::TorchFileSink(const std::filesystem::path& path, std::vector<TensorSpec> tensors)
    : path_(path), tensors_(std::move(tensors)), archive_(state_dict_pickle(tensors_, path.string()), tensors_) {
  file_ = checkpoint::create_file(path_, archive_.bytes());
}

void TorchFileSink::write(size_t tensor, int64_t begin, int64_t end, const void* data, Dtype dtype) {
  archive_.write(file_, path_, tensor, tensors_[tensor], begin, end, data, dtype);
}

void TorchFileSink::finish() {
  archive_.finish(file_, path_);
  checkpoint::flush(file_, path_);
}

}  // namespace trireme::formats
