#include "trireme/checkpoint/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/stopwatch.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/convert_sink.h"
#include "trireme/checkpoint/disk.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPieceBytes = 16 << 20;

bool named_as_torch_file(const fs::path& out) {
  return out.extension() == ".pth" || out.extension() == ".pt" || out.extension() == ".bin";
}

std::string format_of(const ConvertRequest& request) {
  if (!request.to.empty()) return request.to;
  return request.out.extension() == ".gguf" ? "gguf" : named_as_torch_file(request.out) ? "pth" : "safetensors";
}

using base::parent_of;  // where the temporary folder is made: on the same file system as the result

fs::path without_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

void check_place(const ConvertRequest& request, const fs::path& out, bool single_file) {
  if (!fs::exists(parent_of(out))) {
    throw UsageError(fmt::format("error: there is no folder {} to write {} in", parent_of(out).string(), out.string()));
  }
  if (!fs::exists(out)) return;
  if (fs::equivalent(out, request.source))
    throw UsageError(fmt::format("error: {} cannot be converted into itself", out.string()));
  if (!request.force) {
    throw UsageError(
        fmt::format("error: {} is there already\n  name another place, or replace it with --force", out.string()));
  }
  if (single_file == fs::is_directory(out)) {
    throw UsageError(fmt::format("error: {} is a {}, and --force does not put a {} in its place", out.string(),
                                 single_file ? "folder" : "file", single_file ? "file" : "folder"));
  }
  if (!single_file && !fs::exists(out / "config.json") && !fs::exists(out / "model_config.yaml") &&
      !fs::is_empty(out)) {
    throw UsageError(fmt::format("error: {} is a folder without a model: --force replaces models only", out.string()));
  }
}

void check_space(const fs::path& out, int64_t bytes) {
  const int64_t free = base::free_disk_bytes(out);
  if (free >= bytes) return;
  throw UsageError(
      fmt::format("error: {} needs {}, and {} are free on its disk\n  free some space, or name a place on "
                  "another disk; --dtype bfloat16 takes half of float32",
                  out.string(), base::human_bytes(bytes), base::human_bytes(free)));
}

/// True when values that were finite are no longer so: float16 ends at 65504.
bool overflowed(const TensorSource& source, size_t tensor, int64_t begin, const std::vector<std::byte>& piece,
                int64_t count) {
  std::vector<float> wide(1);
  for (int64_t i = 0; i < count; ++i) {
    uint16_t half;
    std::memcpy(&half, piece.data() + 2 * i, 2);
    if ((half & 0x7c00) != 0x7c00) continue;
    source.read(tensor, begin + i, begin + i + 1, wide.data(), Dtype::f32);
    if (std::isfinite(wide[0])) return true;
  }
  return false;
}

/// Tensor after tensor, in pieces of whole rows.
void copy(const TensorSource& source, TensorSink& sink, const ConvertRequest& request) {
  ConvertProgress done;
  for (const SourceTensor& tensor : source.tensors()) done.total_bytes += tensor_bytes(tensor.shape, tensor.dtype);
  std::vector<std::byte> piece;
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    const SourceTensor& tensor = source.tensors()[i];
    const int64_t elements = num_elements(tensor.shape), size = size_of(tensor.dtype);
    const int64_t row = tensor.shape.size() < 2 || elements == 0 ? 1 : elements / tensor.shape[0];
    const int64_t step = std::max(kPieceBytes / (row * size), int64_t{1}) * row;
    for (int64_t begin = 0; begin < elements; begin += step) {
      const int64_t end = std::min(begin + step, elements);
      piece.resize(static_cast<size_t>((end - begin) * size));
      source.read(i, begin, end, piece.data(), tensor.dtype);
      if (tensor.dtype == Dtype::f16 && overflowed(source, i, begin, piece, end - begin)) {
        throw CheckpointError(
            fmt::format("tensor '{}' holds values beyond 65504, the largest of float16: write --dtype "
                        "bfloat16 or float32",
                        tensor.name),
            request.source.string(), tensor.name);
      }
      sink.write(i, begin, end, piece.data(), tensor.dtype);
      done.done_bytes += (end - begin) * size;
      if (request.progress) request.progress(done);
    }
  }
}

void publish(TemporaryFolder& folder, const ConvertPlan& plan, const fs::path& out) {
  if (!plan.single_file) return folder.publish(out);
  base::fsync_directory(folder.path());
  fs::rename(folder.path() / plan.files.front(), out);
  base::fsync_directory(parent_of(out));
}

}  // namespace

ConvertResult convert_checkpoint(const ConvertRequest& request) {
  const base::Stopwatch watch;
  const fs::path out = without_slash(request.out);
  const ConvertInput input = open_convert_source(without_slash(request.source));
  const ConvertPlan plan = plan_convert(input, {.format = format_of(request),
                                                .single_file = named_as_torch_file(out),
                                                .dtype = request.dtype,
                                                .max_shard_bytes = request.max_shard_bytes});
  check_place(request, out, plan.single_file);
  check_space(parent_of(out), plan.bytes);
  for (const std::vector<std::string>& notes : {input.notes, plan.notes}) {
    for (const std::string& line : notes) {
      if (request.note) request.note(line);
    }
  }
  ConvertResult result{.from = input.format, .to = format_of(request), .bytes = plan.bytes};
  for (const SourceTensor& tensor : plan.tensors->tensors()) {
    ++result.tensors;
    result.elements += num_elements(tensor.shape);
  }
  remove_leftovers(parent_of(out));
  translate_file_errors(parent_of(out), plan.bytes, [&] {
    TemporaryFolder folder(parent_of(out), kConvertLabel);
    const std::unique_ptr<TensorSink> sink = plan.open(folder.path());
    copy(*plan.tensors, *sink, request);
    sink->finish();
    publish(folder, plan, out);
  });
  result.seconds = std::chrono::duration<double>(watch.seconds());
  return result;
}

}  // namespace trireme::checkpoint
