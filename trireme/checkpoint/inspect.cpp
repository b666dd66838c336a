#include "trireme/checkpoint/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

void add_tensors(FolderInfo& info, const Checkpoint& checkpoint) {
  std::set<std::string> dtypes;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    const bool optimizer = is_optimizer_file(checkpoint.files[tensor.file]->path());
    ++(optimizer ? info.optimizer_tensors : info.model_tensors);
    if (!optimizer) dtypes.emplace(dtype_name(tensor.dtype));
  }
  const std::vector<std::string> sorted(dtypes.begin(), dtypes.end());
  info.dtypes = base::join(sorted, " ");
}

/// True if it has a file that only checkpoints of Trireme have.
bool is_ours(const fs::path& folder) { return fs::exists(folder / kManifestName) || fs::exists(folder / kStateName); }

FolderInfo inspect(const fs::path& folder) {
  FolderInfo info{.path = folder, .step = step_of(folder), .ours = is_ours(folder)};
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored)) {
    if (!entry->is_regular_file(ignored)) continue;
    info.bytes += static_cast<int64_t>(entry->file_size(ignored));
    const fs::file_time_type time = entry->last_write_time(ignored);
    info.saved = std::max(info.saved.value_or(time), time);
  }
  if (info.ours) info.verdict = verdict_of(folder);
  try {
    const Checkpoint checkpoint = open_checkpoint(folder, Advice::none);
    if (checkpoint.has_manifest) info.step = checkpoint.step;
    add_tensors(info, checkpoint);
  } catch (const Error& error) {
    if (!info.ours) info.verdict = {Verdict::Kind::damaged, error.what()};
  }
  return info;
}

}  // namespace

bool holds_weights(const fs::path& folder) {
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored))
    if (entry->path().extension() == ".safetensors") return true;
  return false;
}

bool is_optimizer_file(const fs::path& path) { return path.filename().string().starts_with("optimizer-"); }

std::vector<TensorSpec> tensors_in_order(const Checkpoint& checkpoint, bool optimizer) {
  std::vector<std::tuple<int, int64_t, TensorSpec>> ordered;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (is_optimizer_file(checkpoint.files[tensor.file]->path()) != optimizer) continue;
    ordered.emplace_back(tensor.file, tensor.begin,
                         TensorSpec{.name = name, .shape = tensor.shape, .dtype = tensor.dtype});
  }
  std::sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a), std::get<2>(a).name) <
           std::tie(std::get<0>(b), std::get<1>(b), std::get<2>(b).name);
  });
  std::vector<TensorSpec> specs;
  for (auto& [file, begin, spec] : ordered) specs.push_back(std::move(spec));
  return specs;
}

std::vector<fs::path> checkpoints_in(const fs::path& folder) {
  if (!fs::is_directory(folder))
    throw CheckpointError(fs::is_regular_file(folder) ? base::make_a_folder_of(folder.string())
                                                      : fmt::format("there is no folder {}", folder.string()),
                          folder.string());
  if (is_ours(folder) || holds_weights(folder)) return {folder};
  std::vector<fs::path> found;
  for (const StepFolder& step : list_step_folders(folder)) found.push_back(step.path);
  if (found.empty() && step_of(folder)) return {folder};  // an empty or damaged step of a run
  if (found.empty())
    throw CheckpointError(
        fmt::format("{} holds no checkpoint: no folder step-... and no .safetensors file", folder.string()),
        folder.string());
  return found;
}

std::vector<FolderInfo> list_checkpoints(const fs::path& folder) {
  std::vector<FolderInfo> infos;
  for (const fs::path& found : checkpoints_in(folder)) infos.push_back(inspect(found));
  return infos;
}

}  // namespace trireme::checkpoint
