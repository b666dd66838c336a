#include "trireme/formats/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/made_folders.h"
#include "trireme/base/named_file.h"
#include "trireme/base/stopwatch.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/disk.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/inspect.h"
#include "trireme/formats/convert_sink.h"
#include "trireme/formats/dcp/dcp.h"
#include "trireme/formats/litgpt/adapter.h"
#include "trireme/formats/torch/archive.h"
#include "trireme/formats/vocabulary.h"

namespace trireme::formats {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPieceBytes = 16 << 20;

// Endings of files that convert does not write.
constexpr std::string_view kOfOtherFiles[] = {".safetensors", ".onnx", ".ckpt", ".zip", ".h5", ".npz", ".tflite"};

std::string format_of(const ConvertRequest& request) {
  if (!request.to.empty()) return request.to;
  if (std::ranges::find(kOfOtherFiles, request.out.extension().string()) != std::end(kOfOtherFiles))
    throw UsageError(
        fmt::format("{} has the name of a file, and a folder with safetensors would be written\n  name a folder, or a "
                    "file of another kind: FILE.gguf or FILE.pth",
                    request.out.string()));
  return request.out.extension() == ".gguf" ? "gguf" : named_as_torch_file(request.out) ? "pth" : "safetensors";
}

using base::parent_of;  // the temporary folder is made there, on the file system of the result

fs::path without_slash(const fs::path& path) { return path.has_filename() ? path : path.parent_path(); }

constexpr std::string_view kWeightEndings[] = {".safetensors", ".bin", ".pth", ".gguf", ".distcp"};
constexpr std::string_view kModelEndings[] = {".json", ".yaml", ".txt", ".model", ".jinja", ".tiktoken", ".md"};

/// Why a folder may not be replaced by a model: it is none, or holds other things, too. Empty: it may.
std::string why_to_keep(const fs::path& folder) {
  bool holds_weights = false;
  const auto ends_in = [](const fs::path& file, auto& endings) {
    return std::ranges::find(endings, file.extension().string()) != std::end(endings);
  };
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const fs::path name = entry.path().filename();
    const bool is_weights = entry.is_regular_file() && ends_in(name, kWeightEndings);
    holds_weights |= is_weights;
    const bool is_known = ends_in(name, kModelEndings) || name == kDcpMetadataName || name == ".gitattributes" ||
                          name == "LICENSE" || name == "LICENSE.txt";
    if (!is_weights && !(entry.is_regular_file() && is_known))
      return fmt::format("it holds {}, which is no part of a model", name.string());
  }
  return holds_weights || fs::is_empty(folder) ? "" : "it is a folder without a model";
}

/// The same of a single file.
std::string why_to_keep_file(const fs::path& file, std::string_view format) {
  std::string begin(4, '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(begin.data(), std::ssize(begin));
  begin.resize(static_cast<size_t>(in.gcount()));
  const bool is_model = format == "gguf" ? begin == "GGUF" : looks_like_torch_file(begin);
  return begin.empty() || is_model ? "" : fmt::format("it is no {} file", format);
}

/// What a folder's weights are taken from rather than from a .gguf in it.
constexpr const char* kBeforeGguf[] = {kDcpMetadataName, "lit_model.pth", kLitAdapterName, "pytorch_model.bin",
                                       "pytorch_model.bin.index.json"};

/// The folders and files that a conversion reads, an adapter's own base among them.
std::vector<fs::path> read_places(const ConvertRequest& request, const adapt::ModelPlace& place) {
  std::vector<fs::path> all = {request.source, request.adapter, request.base};
  if (!request.adapter.empty() || is_adapter(request.source)) all.push_back(adapt::weights_of(place));
  std::erase(all, fs::path());
  for (size_t i = 0, count = all.size(); i < count; ++i) all.push_back(checkpoint::newest_or_itself(all[i]));
  return all;
}

/// Whether a folder is read and this file of it, too. Beside safetensors, other formats are not read, and beside those
/// a .gguf is not.
bool is_read_in(const fs::path& folder, const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_directory(folder) || !fs::equivalent(folder, parent_of(file), ignored)) return false;
  const bool is_gguf = file.extension() == ".gguf";
  if (checkpoint::holds_weights(folder)) return !is_gguf && !named_as_torch_file(file);
  return !is_gguf || std::ranges::none_of(kBeforeGguf, [&](const char* name) { return fs::exists(folder / name); });
}

void check_place(const ConvertRequest& request, const std::vector<fs::path>& read_places, bool single_file) {
  const fs::path& out = request.out;
  fs::path around = parent_of(out);  // what is there of the folders around it
  while (!fs::exists(around)) around = parent_of(around);
  if (!fs::is_directory(around))
    throw UsageError(fmt::format("error: {} cannot be written: {} is no folder\n  name another place", out.string(),
                                 around.string()));
  if (!fs::exists(out)) return;
  if (fs::equivalent(out, request.source))
    throw UsageError(fmt::format("error: {} cannot be converted into itself", out.string()));
  for (const fs::path& read : read_places) {
    std::error_code ignored;
    if (fs::equivalent(read, out, ignored) || (fs::is_regular_file(out) && is_read_in(read, out)))
      throw UsageError(fmt::format("error: {} is read here, and its result cannot take its place\n  name another place",
                                   out.string()));
    for (fs::path around_it = fs::weakly_canonical(read, ignored).parent_path(); around_it.has_filename();
         around_it = around_it.parent_path())
      if (fs::equivalent(around_it, out, ignored))
        throw UsageError(fmt::format("error: {} holds {}, which would go with it\n  name another place", out.string(),
                                     read.string()));
  }
  if (!request.force)
    throw UsageError(
        fmt::format("error: {} exists already\n  name another place, or replace it with --force", out.string()));
  if (single_file == fs::is_directory(out))
    throw UsageError(fmt::format("error: {} is a {}, and --force does not put a {} in its place", out.string(),
                                 single_file ? "folder" : "file", single_file ? "file" : "folder"));
  if (const std::string why = single_file ? why_to_keep_file(out, request.to) : why_to_keep(out); !why.empty())
    throw UsageError(fmt::format("error: {} is not replaced: {}\n  --force replaces models only; name another place",
                                 out.string(), why));
}

void check_space(const fs::path& out, int64_t bytes) {
  const int64_t free = base::free_disk_bytes(out);
  if (free >= bytes) return;
  throw base::StorageError(
      fmt::format("error: {} needs {}, and {} are free on its disk\n  free some space, or {}; --dtype bfloat16 takes "
                  "half of float32",
                  out.string(), base::human_bytes(bytes), base::human_bytes(free), checkpoint::kOtherPlace),
      out.string(), ENOSPC);
}

/// Copies tensor after tensor, in pieces of whole rows.
void copy(const TensorSource& source, TensorSink& sink, const ConvertRequest& request) {
  ConvertProgress done;
  for (const TensorSpec& tensor : source.tensors()) done.total_bytes += tensor_bytes(tensor.shape, tensor.dtype);
  std::vector<std::byte> piece;
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    const TensorSpec& tensor = source.tensors()[i];
    const int64_t elements = num_elements(tensor.shape), size = size_of(tensor.dtype);
    const int64_t row = tensor.shape.size() < 2 || elements == 0 ? 1 : elements / tensor.shape[0];
    const int64_t step = std::max(kPieceBytes / (row * size), int64_t{1}) * row;
    for (int64_t begin = 0; begin < elements; begin += step) {
      const int64_t end = std::min(begin + step, elements);
      piece.resize((end - begin) * size);
      source.read(i, begin, end, piece.data(), tensor.dtype);
      const auto before = [&](int64_t at) {
        double value = 0;
        source.read(i, begin + at, begin + at + 1, &value, Dtype::f64);
        return value;
      };
      if (tensor.dtype == Dtype::f16)
        checkpoint::check_fits_float16(piece.data(), end - begin, before, tensor.name, request.source.string());
      sink.write(i, begin, end, piece.data(), tensor.dtype);
      done.done_bytes += (end - begin) * size;
      if (request.progress) request.progress(done);
    }
  }
}

void publish(checkpoint::TemporaryFolder& folder, const ConvertPlan& plan, const fs::path& out, bool may_replace) {
  if (plan.single_file.empty()) return folder.publish(out, may_replace);
  base::fsync_directory(folder.path());
  if (may_replace)
    fs::rename(folder.path() / plan.single_file, out);
  else
    base::rename_to_new(folder.path() / plan.single_file, out);
  base::fsync_directory(parent_of(out));
}

}  // namespace

ConvertResult convert_checkpoint(const ConvertRequest& given) {
  const base::Stopwatch watch;
  ConvertRequest request = given;
  request.to = format_of(given);
  request.source = without_slash(given.source);
  request.out = base::named_file(without_slash(given.out));
  const fs::path folder = parent_of(request.out);
  const adapt::ModelPlace place{
      .model = request.source, .adapter = request.adapter, .base = request.base, .quantize = request.quantize};
  if (request.quantize != base::BlockFormat::none && request.adapter.empty() && !is_adapter(request.source))
    throw UsageError(fmt::format(
        "error: quantize {} is about a base that an adapter is merged into, and {} is no adapter\n  to write a model "
        "in these blocks, name them as its dtype: --dtype {}",
        base::traits_of(request.quantize).name, request.source.string(), base::traits_of(request.quantize).name));
  if (request.max_shard_bytes != checkpoint::kDefaultShardBytes && request.to != "safetensors")
    throw UsageError(
        fmt::format("error: max_shard_bytes has no effect: {} is written as one file\n  leave it out", request.to));
  const bool stays_adapter = request.to == "gguf" && request.adapter.empty() && is_adapter(request.source);
  const ConvertInput input = stays_adapter ? open_adapter_source(place) : open_convert_source(place);
  const ConvertPlan plan = plan_convert(input, request);
  check_place(request, read_places(request, place), !plan.single_file.empty());
  check_space(folder, plan.bytes);
  for (const std::vector<std::string>& notes : {input.notes, plan.notes})
    for (const std::string& line : notes)
      if (request.note) request.note(line);
  ConvertResult result{.from = input.format, .to = request.to, .bytes = plan.bytes};
  for (const TensorSpec& tensor : plan.tensors->tensors()) {
    ++result.tensors;
    result.elements += num_elements(tensor.shape);
  }
  if (plan.elements > 0) result.elements = plan.elements;
  const auto write = [&] {
    base::MadeFolders around;
    around.make(folder);
    checkpoint::remove_leftovers(folder);
    checkpoint::TemporaryFolder temporary(folder, checkpoint::kConvertLabel);
    const std::unique_ptr<TensorSink> sink = plan.open(temporary.path());
    copy(*plan.tensors, *sink, request);
    sink->finish();
    publish(temporary, plan, request.out, request.force);
  };
  checkpoint::translate_file_errors(folder, plan.bytes, write, checkpoint::kOtherPlace);
  result.seconds = std::chrono::duration<double>(watch.seconds());
  return result;
}

}  // namespace trireme::formats
