#include "trireme/checkpoint/safetensors_tensors.h"

#include <algorithm>

#include "trireme/checkpoint/disk.h"
#include "trireme/checkpoint/inspect.h"

namespace trireme::checkpoint {

SafetensorsSource::SafetensorsSource(Checkpoint checkpoint)
    : checkpoint_(std::move(checkpoint)), tensors_(tensors_in_order(checkpoint_, false)) {}

int64_t SafetensorsSource::num_optimizer_files() const {
  return std::count_if(checkpoint_.files.begin(), checkpoint_.files.end(),
                       [](const auto& file) { return is_optimizer_file(file->path()); });
}

void SafetensorsSource::read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const {
  read_piece(checkpoint_, {tensors_.at(tensor).name, begin, end, data, dtype});
}

SafetensorsSink::SafetensorsSink(const std::filesystem::path& folder, const std::vector<TensorSpec>& tensors,
                                 int64_t max_shard_bytes)
    : folder_(folder), layout_(plan_model_files(tensors, max_shard_bytes)) {
  for (const FilePlan& plan : layout_.files) {
    files_.push_back(create_file(folder_ / plan.name, plan.bytes));
    base::write_at(files_.back(), std::as_bytes(std::span(plan.header)), 0, folder_ / plan.name);
  }
  for (const TensorSpec& tensor : tensors) places_.push_back(layout_.tensors.at(tensor.name));
}

int64_t SafetensorsSink::total_bytes(const std::vector<TensorSpec>& tensors, int64_t max_shard_bytes) {
  int64_t bytes = 0;
  for (const FilePlan& plan : plan_model_files(tensors, max_shard_bytes).files) bytes += plan.bytes;
  return bytes;
}

void SafetensorsSink::write(size_t tensor, int64_t begin, int64_t end, const void* data, Dtype dtype) {
  const TensorPlace& place = places_.at(tensor);
  const auto file = static_cast<size_t>(place.file);
  write_elements(files_[file], folder_ / layout_.files[file].name, place.begin, place.spec.dtype, begin, end, data,
                 dtype);
}

void SafetensorsSink::finish() {
  for (size_t i = 0; i < files_.size(); ++i) flush(files_[i], folder_ / layout_.files[i].name);
  if (!layout_.index_name.empty()) write_new_file(folder_ / layout_.index_name, layout_.index_json);
}

}  // namespace trireme::checkpoint
