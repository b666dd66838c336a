#include "trireme/checkpoint/safetensors_tensors.h"

#include <algorithm>
#include <set>

#include "trireme/base/error.h"
#include "trireme/checkpoint/disk.h"

namespace trireme::checkpoint {
namespace {

std::vector<TensorSpec> specs_of(const std::vector<SourceTensor>& tensors) {
  std::vector<TensorSpec> specs;
  for (const SourceTensor& tensor : tensors) specs.push_back({tensor.name, tensor.shape, tensor.dtype});
  return specs;
}

}  // namespace

SafetensorsSource::SafetensorsSource(Checkpoint checkpoint) : checkpoint_(std::move(checkpoint)) {
  std::set<int> optimizer_files;
  std::vector<std::pair<std::pair<int, int64_t>, const std::string*>> order;
  for (const auto& [name, stored] : checkpoint_.tensors) {
    const std::string file = checkpoint_.files[static_cast<size_t>(stored.file)]->path().filename().string();
    if (file.starts_with("optimizer-")) {
      optimizer_files.insert(stored.file);
    } else {
      order.push_back({{stored.file, stored.begin}, &name});
    }
  }
  std::sort(order.begin(), order.end());
  for (const auto& [place, name] : order) {
    const StoredTensor& stored = checkpoint_.tensors.at(*name);
    tensors_.push_back({.name = *name, .shape = stored.shape, .dtype = stored.dtype});
  }
  num_optimizer_files_ = static_cast<int64_t>(optimizer_files.size());
}

void SafetensorsSource::read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const {
  const PieceRequest request{
      .tensor = tensors_.at(tensor).name, .begin = begin, .end = end, .data = data, .dtype = dtype};
  read_piece(checkpoint_, request);
}

SafetensorsSink::SafetensorsSink(const std::filesystem::path& folder, const std::vector<SourceTensor>& tensors,
                                 int64_t max_shard_bytes)
    : folder_(folder), layout_(plan_model_files(specs_of(tensors), max_shard_bytes)) {
  for (const FilePlan& plan : layout_.files) {
    files_.push_back(create_file(folder_ / plan.name, plan.bytes));
    base::write_at(files_.back(), std::as_bytes(std::span(plan.header)), 0, folder_ / plan.name);
  }
  for (const SourceTensor& tensor : tensors) places_.push_back(layout_.tensors.at(tensor.name));
}

int64_t SafetensorsSink::total_bytes(const std::vector<SourceTensor>& tensors, int64_t max_shard_bytes) {
  int64_t bytes = 0;
  for (const FilePlan& plan : plan_model_files(specs_of(tensors), max_shard_bytes).files) bytes += plan.bytes;
  return bytes;
}

void SafetensorsSink::write(size_t tensor, int64_t begin, int64_t end, const void* data, Dtype dtype) {
  constexpr int64_t kPiece = 1 << 17;  // elements converted at a time, at most 1 MiB
  const TensorPlace& place = places_.at(tensor);
  const FilePlan& file = layout_.files[static_cast<size_t>(place.file)];
  const int64_t size = size_of(place.spec.dtype);
  const auto* in = static_cast<const std::byte*>(data);
  std::vector<std::byte> converted;
  while (begin < end) {
    const int64_t count = dtype == place.spec.dtype ? end - begin : std::min(end - begin, kPiece);
    std::span<const std::byte> bytes(in, static_cast<size_t>(count * size));
    if (dtype != place.spec.dtype) {
      converted.resize(static_cast<size_t>(count * size));
      convert(in, dtype, converted.data(), place.spec.dtype, count);
      bytes = converted;
    }
    base::write_at(files_[static_cast<size_t>(place.file)], bytes, place.begin + begin * size, folder_ / file.name);
    in += count * size_of(dtype);
    begin += count;
  }
}

void SafetensorsSink::finish() {
  for (size_t i = 0; i < files_.size(); ++i) flush(files_[i], folder_ / layout_.files[i].name);
  if (!layout_.index_name.empty()) write_new_file(folder_ / layout_.index_name, layout_.index_json);
}

}  // namespace trireme::checkpoint
