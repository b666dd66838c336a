#include "trireme/formats/dcp/dcp.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "trireme/base/error.h"

namespace trireme::formats {
namespace {

int64_t folder_bytes(const std::filesystem::path& folder) {
  int64_t total = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.is_regular_file()) total += static_cast<int64_t>(entry.file_size());
  return total;
}

/// A chunk divided into `count` runs of `run` elements that are contiguous in chunk and tensor.
struct Runs {
  int64_t run = 1;
  int64_t count = 1;
};

Runs runs_of(const DcpChunk& chunk, const std::vector<int64_t>& shape) {
  Runs runs;
  size_t dim = shape.size();
  while (dim > 0) {
    --dim;
    runs.run *= chunk.sizes[dim];
    if (chunk.sizes[dim] != shape[dim]) break;
  }
  for (size_t outer = 0; outer < dim; ++outer) runs.count *= chunk.sizes[outer];
  return runs;
}

/// The element of the tensor at which run `index` begins.
int64_t run_begin(const DcpChunk& chunk, const std::vector<int64_t>& shape, const Runs& runs, int64_t index) {
  int64_t rest = index * runs.run, element = 0, step = 1;
  for (size_t dim = shape.size(); dim-- > 0;) {
    element += (chunk.offsets[dim] + rest % chunk.sizes[dim]) * step;
    rest /= chunk.sizes[dim];
    step *= shape[dim];
  }
  return element;
}

}  // namespace

DcpSource::DcpSource(const std::filesystem::path& folder) : folder_(folder) {
  const std::filesystem::path path = folder / kDcpMetadataName;
  std::string bytes = base::read_file(path);
  ReadBudget budget(folder_bytes(folder), path.string());
  for (DcpTensor& tensor : parse_dcp_metadata(std::move(bytes), budget)) {
    tensors_.push_back(std::move(tensor.tensor));
    chunks_.push_back(std::move(tensor.chunks));
  }
  for (size_t i = 0; i < tensors_.size(); ++i) {
    for (const DcpChunk& chunk : chunks_[i]) {
      const auto file = files_.try_emplace(chunk.file, folder / chunk.file).first;
      const int64_t size = file->second.size_bytes();
      if (chunk.begin <= size && chunk.bytes <= size - chunk.begin) continue;
      throw CheckpointError(
          fmt::format("{} has {} bytes, but tensor '{}' lies in bytes {} to {}: it is truncated",
                      (folder / chunk.file).string(), size, tensors_[i].name, chunk.begin, chunk.begin + chunk.bytes),
          (folder / chunk.file).string(), tensors_[i].name);
    }
  }
}

StridedView DcpSource::open_chunk(size_t tensor, size_t chunk) const {
  const std::lock_guard lock(mutex_);
  if (opened_ == std::pair(tensor, chunk)) return view_;
  const DcpChunk& place = chunks_[tensor][chunk];
  const TensorSpec& spec = tensors_[tensor];
  const base::MappedFile& file = files_.at(place.file);
  ReadBudget budget(place.bytes, file.path().string());
  const auto begin = static_cast<size_t>(place.begin), bytes = static_cast<size_t>(place.bytes);
  const TorchArchive archive(file.bytes().subspan(begin, bytes), budget);
  std::optional<StridedView> view = archive.view(archive.pickle().root(), spec.name);
  if (!view || view->shape != place.sizes || view->dtype != spec.dtype)
    throw CheckpointError(
        fmt::format("{} does not hold the chunk {} of tensor '{}' at byte {} that {} describes", file.path().string(),
                    shape_text(place.sizes), spec.name, place.begin, kDcpMetadataName),
        file.path().string(), spec.name);
  view_ = std::move(*view);
  opened_ = {tensor, chunk};
  return view_;
}

void DcpSource::read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const {
  const TensorSpec& spec = tensors_[tensor];
  check_convertible(spec, dtype, folder_.string());
  for (size_t c = 0; c < chunks_[tensor].size(); ++c) {
    const DcpChunk& chunk = chunks_[tensor][c];
    const Runs runs = runs_of(chunk, spec.shape);
    // Runs lie in ascending order: skip those before `begin`, stop behind `end`.
    const auto all = std::views::iota(int64_t{0}, runs.count);
    const auto first_run = std::ranges::partition_point(
        all, [&](int64_t run) { return run_begin(chunk, spec.shape, runs, run) + runs.run <= begin; });
    for (int64_t run = first_run - all.begin(); run < runs.count; ++run) {
      const int64_t first = run_begin(chunk, spec.shape, runs, run);
      const int64_t from = std::max(begin, first), to = std::min(end, first + runs.run);
      if (from >= to) break;
      const StridedView view = open_chunk(tensor, c);
      read_strided(view, run * runs.run + from - first, run * runs.run + to - first,
                   static_cast<std::byte*>(data) + (from - begin) * size_of(dtype), dtype);
    }
  }
}

}  // namespace trireme::formats
