#include "trireme/checkpoint/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/read_budget.h"

namespace trireme::checkpoint {
namespace {

std::vector<std::vector<TensorSpec>> split_into_files(std::span<const TensorSpec> tensors, int64_t max_shard_bytes) {
  std::vector<std::vector<TensorSpec>> files;
  int64_t filled = 0;
  for (const TensorSpec& tensor : tensors) {
    const int64_t bytes = tensor_bytes(tensor.shape, tensor.dtype);
    if (files.empty() || (filled > 0 && bytes > max_shard_bytes - filled)) {
      files.emplace_back();
      filled = 0;
    }
    files.back().push_back(tensor);
    filled += bytes;
  }
  return files;
}

/// Widest dtypes first, so that each tensor is aligned to its element.
void sort_by_width(std::vector<TensorSpec>& file) {
  std::stable_sort(file.begin(), file.end(),
                   [](const TensorSpec& a, const TensorSpec& b) { return size_of(a.dtype) > size_of(b.dtype); });
}

/// Tensors of each file, and the files' names.
struct Groups {
  std::vector<std::string> names;
  std::vector<std::vector<TensorSpec>> tensors;
};

Layout lay_out(std::string_view stem, Groups groups) {
  Layout layout;
  int64_t total_bytes = 0;
  nlohmann::json weight_map = nlohmann::json::object();
  for (size_t i = 0; i < groups.tensors.size(); ++i) {
    sort_by_width(groups.tensors[i]);
    FilePlan file;
    file.name = groups.names[i];
    file.header = write_header(groups.tensors[i], {{"format", "pt"}});
    file.bytes = std::ssize(file.header);
    for (const TensorSpec& tensor : groups.tensors[i]) {
      const int64_t bytes = tensor_bytes(tensor.shape, tensor.dtype);
      const TensorPlace place{
          .spec = tensor, .elements = num_elements(tensor.shape), .file = static_cast<int>(i), .begin = file.bytes};
      if (!layout.tensors.emplace(tensor.name, place).second)
        throw CheckpointError(fmt::format("tensor name '{}' is given twice", tensor.name), "", tensor.name);
      weight_map[tensor.name] = file.name;
      file.bytes += bytes;
      if (__builtin_add_overflow(total_bytes, bytes, &total_bytes))
        throw CheckpointError("the tensors claim more bytes than any disk holds", "", tensor.name);
    }
    layout.files.push_back(std::move(file));
  }
  const bool is_single = layout.files.size() == 1 && layout.files[0].name == fmt::format("{}.safetensors", stem);
  if (!is_single && !layout.files.empty()) {
    layout.index_name = fmt::format("{}.safetensors.index.json", stem);
    layout.index_json =
        nlohmann::json{{"metadata", {{"total_size", total_bytes}}}, {"weight_map", weight_map}}.dump(2) + "\n";
  }
  return layout;
}

Layout plan_files(std::string_view stem, bool always_numbered, std::span<const TensorSpec> tensors,
                  int64_t max_shard_bytes) {
  if (max_shard_bytes < 1)
    throw UsageError(fmt::format("a checkpoint file of at most {} bytes cannot hold anything; the usual limit is {}",
                                 max_shard_bytes, kDefaultShardBytes));
  Groups groups{.tensors = split_into_files(tensors, max_shard_bytes)};
  if (groups.tensors.empty() && !always_numbered) groups.tensors.emplace_back();  // no tensors: still a file
  const size_t count = groups.tensors.size();
  for (size_t i = 0; i < count; ++i)
    groups.names.push_back(always_numbered || count > 1
                               ? fmt::format("{}-{:05d}-of-{:05d}.safetensors", stem, i + 1, count)
                               : fmt::format("{}.safetensors", stem));
  return lay_out(stem, std::move(groups));
}

/// Whether a given index names the same tensors in the same files: it may also name tensors that are not saved, or
/// files that do not exist.
bool same_weight_map(const std::string& given, const std::string& ours) {
  const auto map_of = [](const std::string& text) {
    const nlohmann::json index = base::parse_json_if_sound(text);
    return index.is_object() && index.contains("weight_map") ? index["weight_map"] : nlohmann::json();
  };
  return map_of(given) == map_of(ours);
}

}  // namespace

Layout plan_model_files(std::span<const TensorSpec> tensors, int64_t max_shard_bytes,
                        const std::map<std::string, std::string>& given, const std::string& index_json,
                        std::string_view stem) {
  std::map<std::string, std::vector<TensorSpec>> files;
  for (const TensorSpec& tensor : tensors) {
    const auto file = given.find(tensor.name);
    if (file == given.end()) return plan_files(stem, false, tensors, max_shard_bytes);
    files[file->second].push_back(tensor);
  }
  Groups groups;
  for (auto& [name, members] : files) {
    groups.names.push_back(name);
    groups.tensors.push_back(std::move(members));
  }
  Layout layout = lay_out(stem, std::move(groups));
  if (!layout.index_name.empty() && same_weight_map(index_json, layout.index_json)) layout.index_json = index_json;
  return layout;
}

Layout plan_optimizer_files(std::span<const TensorSpec> tensors, int64_t max_shard_bytes) {
  return plan_files("optimizer", true, tensors, max_shard_bytes);
}

std::vector<TensorSpec> state_tensors(std::span<const TensorSpec> parameters,
                                      std::span<const std::string> optimizer_state, Dtype dtype) {
  std::vector<TensorSpec> result;
  for (const TensorSpec& parameter : parameters) {
    const auto add = [&](const std::string& kept) {
      result.push_back({.name = parameter.name + "." + kept, .shape = parameter.shape, .dtype = dtype});
    };
    add("master");
    for (const std::string& name : optimizer_state) add(name);
  }
  return result;
}

std::vector<std::pair<std::string, std::string>> parse_weight_index(const std::string& text, const std::string& path) {
  const auto fail = [&](const std::string& problem) {
    throw CheckpointError(fmt::format("{} is not a sound index of weights: {}", path, problem), path);
  };
  std::vector<std::pair<std::string, std::string>> result;
  try {
    ReadBudget budget(std::ssize(text), path);
    const nlohmann::json root = parse_json(text, 4, "a sound index of weights", budget);
    for (const auto& [tensor, file] : root.at("weight_map").items()) {
      result.emplace_back(tensor, file.get<std::string>());
      if (!is_plain_name(result.back().second))
        fail(fmt::format("tensor '{}' is said to be in '{}', which is no file of the same folder", tensor,
                         result.back().second));
    }
  } catch (const nlohmann::json::exception& error) {
    fail(base::json_reason(error));
  }
  return result;
}

std::optional<std::vector<std::pair<std::string, std::string>>> read_weight_index(const std::filesystem::path& folder,
                                                                                  const std::string& single) {
  const std::filesystem::path path = folder / (single + ".index.json");
  if (!std::filesystem::exists(path)) return std::nullopt;
  auto index = parse_weight_index(base::read_side_file(path), path.string());
  // Left from another save. transformers takes the single file then, whichever is newer.
  if (std::filesystem::exists(folder / single) &&
      std::ranges::any_of(index, [&](const auto& entry) { return entry.second != single; }))
    throw CheckpointError(
        fmt::format("{0} holds {1} and an index of other files ({2}): transformers reads {1}; move one of them away",
                    folder.string(), single, path.filename().string()),
        path.string());
  return index;
}

}  // namespace trireme::checkpoint
