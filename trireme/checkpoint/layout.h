// Layout: the file and the bytes of each tensor of a checkpoint, computed from names, shapes and dtypes alone.
//
// So every rank computes the same layout without communication, and then writes only its own ranges. A file takes
// tensors in the given order until the next one would exceed max_shard_bytes. Inside a file the wider dtypes come
// first, so that each tensor is aligned to its element. A tensor larger than the limit gets a file of its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/checkpoint/safetensors.h"

namespace trireme::checkpoint {

/// Hugging Face's limit for one file.
constexpr int64_t kDefaultShardBytes = 5'000'000'000;

/// One safetensors file to be written.
struct FilePlan {
  std::string name;    ///< "model.safetensors"
  int64_t bytes = 0;   ///< whole file, header included
  std::string header;  ///< the file's first bytes
};

/// Where one tensor goes.
struct TensorPlace {
  TensorSpec spec;
  int64_t elements = 0;
  int file = 0;        ///< index in Layout::files
  int64_t begin = 0;   ///< first byte, from the start of the file
};

struct Layout {
  std::vector<FilePlan> files;
  std::map<std::string, TensorPlace> tensors;
  std::string index_name;  ///< "model.safetensors.index.json"; empty when there is a single model.safetensors
  std::string index_json;  ///< {"metadata": {"total_size"}, "weight_map": {name: file}}
};

/// Files `model.safetensors`, or `model-00001-of-0000N.safetensors` with an index when there are several.
///
/// `given` (tensor name -> file name) replaces this division, so that a model is written to the files that it came
/// from. It is ignored unless it has all tensors. If it is used and `index_json` agrees with it, that index is kept.
/// `stem` replaces "model" in the names of files: "adapter_model".
///
/// Errors    CheckpointError on names that cannot be stored; UsageError when max_shard_bytes < 1
Layout plan_model_files(std::span<const TensorSpec> tensors, int64_t max_shard_bytes = kDefaultShardBytes,
                        const std::map<std::string, std::string>& given = {}, const std::string& index_json = "",
                        std::string_view stem = "model");

/// Files `optimizer-00001-of-0000N.safetensors`, always numbered and with an index, so that readers of Hugging Face
/// folders never mistake them for weights. No tensors: no files.
Layout plan_optimizer_files(std::span<const TensorSpec> tensors, int64_t max_shard_bytes = kDefaultShardBytes);

/// The optimizer's tensors of `parameters`: `<name>.master`, and `<name>.<state>` for each name in `optimizer_state`
/// (AdamW's exp_avg and exp_avg_sq), in `dtype` (fp32; float64 for 64-true).
std::vector<TensorSpec> state_tensors(std::span<const TensorSpec> parameters,
                                      std::span<const std::string> optimizer_state, Dtype dtype = Dtype::f32);

/// {"weight_map": {tensor: file}} of a Hugging Face index; `path` is for messages.
///
/// Errors    CheckpointError: broken JSON, or a file that is not a plain name in the same folder
std::vector<std::pair<std::string, std::string>> parse_weight_index(const std::string& text, const std::string& path);

/// The index of a Hugging Face folder whose weights are in `single` ("model.safetensors") or in several files; nothing
/// if there is none.
///
/// Errors    as parse_weight_index; CheckpointError if `single` lies beside an index of other files
std::optional<std::vector<std::pair<std::string, std::string>>> read_weight_index(const std::filesystem::path& folder,
                                                                                  const std::string& single);

}  // namespace trireme::checkpoint
