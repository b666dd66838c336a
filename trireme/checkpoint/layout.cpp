#include "trireme/checkpoint/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

int64_t tensor_bytes(const TensorSpec& tensor) {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(num_elements(tensor.shape), size_of(tensor.dtype), &bytes)) {
    throw ShapeError(fmt::format("tensor '{}' of shape {} has more bytes than a file can hold", tensor.name,
                                 shape_text(tensor.shape)));
  }
  return bytes;
}

std::vector<std::vector<TensorSpec>> split_into_files(std::span<const TensorSpec> tensors, int64_t max_shard_bytes) {
  std::vector<std::vector<TensorSpec>> files;
  int64_t filled = 0;
  for (const TensorSpec& tensor : tensors) {
    const int64_t bytes = tensor_bytes(tensor);
    if (files.empty() || (filled > 0 && bytes > max_shard_bytes - filled)) {
      files.emplace_back();
      filled = 0;
    }
    files.back().push_back(tensor);
    filled += bytes;
  }
  for (std::vector<TensorSpec>& file : files) {
    std::stable_sort(file.begin(), file.end(),
                     [](const TensorSpec& a, const TensorSpec& b) { return size_of(a.dtype) > size_of(b.dtype); });
  }
  return files;
}

Layout plan_files(std::string_view stem, bool always_numbered, std::span<const TensorSpec> tensors,
                  int64_t max_shard_bytes) {
  if (max_shard_bytes < 1) {
    throw UsageError(fmt::format("a checkpoint file of at most {} bytes cannot hold anything; the usual limit is {}",
                                 max_shard_bytes, kDefaultShardBytes));
  }
  std::vector<std::vector<TensorSpec>> groups = split_into_files(tensors, max_shard_bytes);
  if (groups.empty() && !always_numbered) groups.emplace_back();  // a model without tensors is still a file
  const bool numbered = always_numbered || groups.size() > 1;

  Layout layout;
  int64_t total_bytes = 0;
  nlohmann::json weight_map = nlohmann::json::object();
  for (size_t i = 0; i < groups.size(); ++i) {
    FilePlan file;
    file.name = numbered ? fmt::format("{}-{:05d}-of-{:05d}.safetensors", stem, i + 1, groups.size())
                         : fmt::format("{}.safetensors", stem);
    file.header = write_header(groups[i], {{"format", "pt"}});
    file.bytes = static_cast<int64_t>(file.header.size());
    for (const TensorSpec& tensor : groups[i]) {
      const int64_t bytes = tensor_bytes(tensor);
      const TensorPlace place{
          .spec = tensor, .elements = num_elements(tensor.shape), .file = static_cast<int>(i), .begin = file.bytes};
      if (!layout.tensors.emplace(tensor.name, place).second) {
        throw CheckpointError(fmt::format("tensor name '{}' is given twice", tensor.name), "", tensor.name);
      }
      weight_map[tensor.name] = file.name;
      file.bytes += bytes;
      total_bytes += bytes;
    }
    layout.files.push_back(std::move(file));
  }
  if (numbered && !layout.files.empty()) {
    layout.index_name = fmt::format("{}.safetensors.index.json", stem);
    layout.index_json =
        nlohmann::json{{"metadata", {{"total_size", total_bytes}}}, {"weight_map", weight_map}}.dump(2) + "\n";
  }
  return layout;
}

}  // namespace

Layout plan_model_files(std::span<const TensorSpec> tensors, int64_t max_shard_bytes) {
  return plan_files("model", false, tensors, max_shard_bytes);
}

Layout plan_optimizer_files(std::span<const TensorSpec> tensors, int64_t max_shard_bytes) {
  return plan_files("optimizer", true, tensors, max_shard_bytes);
}

std::vector<TensorSpec> adamw_state_tensors(std::span<const TensorSpec> parameters, Dtype dtype) {
  std::vector<TensorSpec> result;
  for (const TensorSpec& parameter : parameters) {
    for (const char* suffix : {".master", ".exp_avg", ".exp_avg_sq"}) {
      result.push_back({.name = parameter.name + suffix, .shape = parameter.shape, .dtype = dtype});
    }
  }
  return result;
}

}  // namespace trireme::checkpoint
