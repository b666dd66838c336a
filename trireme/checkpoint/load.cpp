#include "trireme/checkpoint/load.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <tuple>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/foreign_weights.h"
#include "trireme/checkpoint/layout.h"
#include "trireme/checkpoint/quantized_tensors.h"
#include "trireme/checkpoint/window_reader.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelName = "model.safetensors";

[[noreturn]] void fail_load(const fs::path& path, const std::string& message, const std::string& tensor = "") {
  throw CheckpointError(message, path.string(), tensor);
}

std::string read_all(const BlockFile& file) {
  std::string text(file.bytes(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

/// Without an index, the names of the files say how many there are: model-00001-of-00002.safetensors.
void check_parts(const fs::path& folder, const std::vector<std::string>& names) {
  static const std::regex kPart(R"((.*)-(\d{5})-of-(\d{5})\.safetensors)");
  for (const std::string& name : names) {
    std::smatch part;
    if (!std::regex_match(name, part, kPart)) continue;
    for (int number = 1; number <= std::stoi(part[3]); ++number) {
      const std::string other = fmt::format("{}-{:05}-of-{}.safetensors", part[1].str(), number, part[3].str());
      if (std::binary_search(names.begin(), names.end(), other)) continue;
      fail_load(folder,
                fmt::format("{} is not a whole model: {} is there, and {} is missing", folder.string(), name, other));
    }
  }
}

/// Weight files of a folder without a manifest: those of the index, else model.safetensors, else all.
std::vector<std::string> weight_files(const fs::path& folder) {
  if (const auto index = read_weight_index(folder, kModelName)) {
    std::set<std::string> files;
    for (const auto& [tensor, file] : *index) files.insert(file);
    return {files.begin(), files.end()};
  }
  if (fs::exists(folder / kModelName)) return {kModelName};
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  check_parts(folder, names);
  return names;
}

void add_file(Checkpoint& checkpoint, const std::string& name, std::optional<ManifestFile> expected, Advice advice) {
  const auto file = std::make_shared<const BlockFile>(checkpoint.path / name, std::move(expected), advice);
  const SafetensorsHeader header = read_header(
      file->bytes(), [&](int64_t offset, std::span<std::byte> target) { file->read(offset, target); },
      file->path().string());
  const int index = static_cast<int>(checkpoint.files.size());
  checkpoint.files.push_back(file);
  for (const auto& [tensor, entry] : header.tensors) {
    const StoredTensor stored{.dtype = entry.dtype,
                              .shape = entry.shape,
                              .elements = num_elements(entry.shape),
                              .file = index,
                              .begin = entry.begin};
    const auto [place, is_new] = checkpoint.tensors.emplace(tensor, stored);
    if (!is_new) {
      fail_load(file->path(),
                fmt::format("tensor '{}' is in {} and in {}: it is unknown which one counts", tensor,
                            checkpoint.files[place->second.file]->path().string(), file->path().string()),
                tensor);
    }
  }
}

void open_with_manifest(Checkpoint& checkpoint, Advice advice) {
  const fs::path path = checkpoint.path / kManifestName;
  try {
    checkpoint.manifest = parse_manifest(base::read_side_file(path), path.string());
  } catch (const base::FileError& error) {
    throw_refused(error, advice);
  } catch (const Error& error) {
    throw_damaged(checkpoint.path, error.what(), path, "", advice);
  }
  checkpoint.has_manifest = true;
  checkpoint.step = checkpoint.manifest.step;
  // Another program may have put its own beside the files that the manifest has.
  if (!checkpoint.manifest.files.contains(kModelName) && fs::exists(checkpoint.path / kModelName))
    read_weight_index(checkpoint.path, kModelName);
  for (const auto& [name, file] : checkpoint.manifest.files) {
    if (name.ends_with(".safetensors")) {
      add_file(checkpoint, name, file, advice);
      continue;
    }
    std::string text = read_all(BlockFile(checkpoint.path / name, file, advice));
    if (name == kStateName) checkpoint.state_json = std::move(text);
  }
}

// "process 812 on node1": who holds the lock of the run's folder (launch/machines/folder_lock.h). Empty: nobody else.
std::string who_runs_in(const fs::path& folder) try {
  const fs::path path = folder / ".lock";
  if (!base::is_file(path) || std::getenv("TRIREME_LOCK_FD") != nullptr) return "";  // or this rank's own job has it
  const base::FileDescriptor lock = base::open_file(path, O_RDONLY);
  if (::flock(lock.get(), LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK) return "";
  const auto holder = base::parse_json_if_sound(base::read_file(path, 1 << 16));
  if (!holder.is_object()) return "another process";
  const int64_t pid = holder.at("pid");
  return pid == ::getpid() ? "" : fmt::format("process {} on {}", pid, holder.at("host").get<std::string>());
} catch (const base::FileError&) {
  return "";
} catch (const nlohmann::json::exception&) {  // written by another version
  return "another process";
}

[[noreturn]] void refuse_folder_without_weights(const fs::path& path) {
  std::vector<PassedOver> passed_over;
  const std::optional<fs::path> latest = find_latest(path, &passed_over);
  std::string more;
  if (latest) {
    more = fmt::format("; its newest good checkpoint is {}", latest->string());
  } else if (!passed_over.empty()) {
    const PassedOver& newest = passed_over.front();
    more =
        fmt::format(", and none of the {} in it is good; the newest is {}: {}",
                    base::plural(std::ssize(passed_over), "checkpoint"), newest.path.string(), newest.verdict.problem);
  } else if (const std::string holder = who_runs_in(path); !holder.empty()) {
    fail_load(path, fmt::format("{} is the folder of a run that has saved no checkpoint yet, and still runs ({}); wait "
                                "for its first save (train.save_interval)",
                                path.string(), holder));
  } else if (fs::exists(path / kRunFile)) {
    fail_load(path, fmt::format("{} is the folder of a run that has saved no checkpoint yet; start it again with its "
                                "own command (--resume auto starts afresh where there is none)",
                                path.string()));
  } else if (const std::string advice = advice_on_foreign_weights(path); !advice.empty()) {
    fail_load(path, advice);
  }
  fail_load(path, fmt::format("{} is not a checkpoint: it holds no .safetensors file{}", path.string(), more));
}

void check_request(const Checkpoint& checkpoint, const PieceRequest& request) {
  const StoredTensor& tensor = checkpoint.tensor(request.tensor);
  if (request.begin < 0 || request.begin > request.end || request.end > tensor.elements) {
    fail_load(checkpoint.path,
              fmt::format("elements {} to {} of tensor '{}' were asked for, but in {} its shape is {}: {}",
                          request.begin, request.end, request.tensor, checkpoint.path.string(),
                          shape_text(tensor.shape), base::plural(tensor.elements, "element")),
              request.tensor);
  }
  if (!convertible(tensor.dtype, request.dtype)) {
    fail_load(
        checkpoint.path,
        fmt::format(
            "tensor '{}' is {} in {} and cannot be read as {}: only F64, F32, F16 and BF16 convert into each other",
            request.tensor, dtype_name(tensor.dtype), checkpoint.path.string(), dtype_name(request.dtype)),
        request.tensor);
  }
}

void read_piece(const BlockFile& file, const StoredTensor& tensor, const PieceRequest& request) {
  const int64_t file_size = size_of(tensor.dtype);
  const int64_t memory_size = size_of(request.dtype);
  auto* target = static_cast<std::byte*>(request.data);
  if (tensor.dtype == request.dtype) {
    const int64_t bytes = (request.end - request.begin) * file_size;
    file.read(tensor.begin + request.begin * file_size, {target, static_cast<size_t>(bytes)}, request.tensor);
    return;
  }
  std::vector<std::byte> buffer(std::min(kBlockBytes, (request.end - request.begin) * file_size));
  for (int64_t element = request.begin; element < request.end;) {
    // Reads to the end of the block, so that no block is read twice; if the block cuts an element, one element.
    const int64_t position = tensor.begin + element * file_size;
    const int64_t left_in_block = kBlockBytes - position % kBlockBytes;
    const int64_t count = std::min(std::max(left_in_block / file_size, int64_t{1}), request.end - element);
    file.read(position, std::span(buffer).first(count * file_size), request.tensor);
    convert(buffer.data(), tensor.dtype, target + (element - request.begin) * memory_size, request.dtype, count);
    element += count;
  }
}

bool is_quantized(const Checkpoint& checkpoint, const std::string& tensor) {
  return checkpoint.quantized != nullptr && checkpoint.quantized->has(tensor);
}

/// The values that codes stand for, in steps of at most 1 MiB; codes lie two in a byte.
void read_quantized(const Checkpoint& checkpoint, const PieceRequest& request) {
  const std::shared_ptr<const ops::Quantized> whole = checkpoint.quantized->whole(request.tensor);
  std::vector<float> values(static_cast<size_t>(std::min(kBlockBytes / 4 + 1, request.end - request.begin + 1)));
  for (int64_t begin = request.begin; begin < request.end;) {
    const int64_t odd = begin % 2, end = std::min(begin - odd + kBlockBytes / 4, request.end);
    ops::dequantize(*whole, begin - odd, end - begin + odd, values.data());
    convert(values.data() + odd, Dtype::f32,
            static_cast<std::byte*>(request.data) + (begin - request.begin) * size_of(request.dtype), request.dtype,
            end - begin);
    begin = end;
  }
}

/// What lies in the files, as numbers.
void read_values(const Checkpoint& checkpoint, const StoredTensor& tensor, const PieceRequest& request) {
  if (is_quantized(checkpoint, request.tensor)) return read_quantized(checkpoint, request);
  read_piece(*checkpoint.files[tensor.file], tensor, request);
}

bool is_changed(const Checkpoint& checkpoint, const std::string& tensor) {
  return checkpoint.change != nullptr && checkpoint.change->changes(tensor);
}

/// Reads and changes a tensor in steps of at most 4 MiB. Steps of whole rows cost the change least.
void read_changed(const Checkpoint& checkpoint, const StoredTensor& tensor, const PieceRequest& request) {
  const Dtype wide = tensor.dtype == Dtype::f64 || request.dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  const int64_t row = tensor.shape.size() < 2 || tensor.elements == 0 ? 1 : tensor.elements / tensor.shape[0];
  const int64_t step = std::max(4 * kBlockBytes / size_of(wide) / row, int64_t{1}) * row;
  const bool in_place = request.dtype == wide;
  std::vector<std::byte> buffer(in_place ? 0 : std::min(step, request.end - request.begin) * size_of(wide));
  for (int64_t begin = request.begin; begin < request.end;) {
    const int64_t end = std::min((begin / row + std::max(step / row, int64_t{1})) * row, request.end);
    std::byte* target = static_cast<std::byte*>(request.data) + (begin - request.begin) * size_of(request.dtype);
    void* values = in_place ? target : buffer.data();
    read_values(checkpoint, tensor, {request.tensor, begin, end, values, wide});
    checkpoint.change->apply(request.tensor, begin, end, values, wide);
    if (!in_place) convert(values, wide, target, request.dtype, end - begin);
    begin = end;
  }
}

/// Whether a tensor's values are not just those of its file.
bool is_made(const Checkpoint& checkpoint, const std::string& tensor) {
  return is_changed(checkpoint, tensor) || is_quantized(checkpoint, tensor);
}

/// The bytes of a request in its file.
struct Wanted {
  const BlockFile* file;
  const StoredTensor* tensor;
  const PieceRequest* request;
  int64_t begin, end;
};

std::vector<Wanted> in_file_order(const Checkpoint& checkpoint, std::span<const PieceRequest> requests) {
  std::vector<Wanted> wanted;
  for (const PieceRequest& request : requests) {
    check_request(checkpoint, request);
    if (request.begin == request.end || is_made(checkpoint, request.tensor)) continue;
    const StoredTensor& tensor = checkpoint.tensor(request.tensor);
    const int64_t size = size_of(tensor.dtype);
    wanted.push_back({checkpoint.files[tensor.file].get(), &tensor, &request, tensor.begin + request.begin * size,
                      tensor.begin + request.end * size});
  }
  std::sort(wanted.begin(), wanted.end(), [](const Wanted& a, const Wanted& b) {
    return std::tuple(a.tensor->file, a.begin) < std::tuple(b.tensor->file, b.begin);
  });
  return wanted;
}

struct FileWindow {
  const BlockFile* file;
  int64_t begin, end;
};

/// The blocks that are touched, each once and whole, joined to windows.
std::vector<FileWindow> windows_of(std::span<const Wanted> wanted) {
  std::vector<FileWindow> windows;
  for (const Wanted& w : wanted) {
    int64_t begin = w.begin / kBlockBytes * kBlockBytes;
    const int64_t end = w.file->block_end((w.end - 1) / kBlockBytes);
    const bool goes_on = !windows.empty() && windows.back().file == w.file;
    if (goes_on) begin = std::max(begin, windows.back().end);
    while (begin < end) {
      if (windows.empty() || windows.back().file != w.file || windows.back().end != begin ||
          windows.back().end - windows.back().begin == WindowReader::kBytes)
        windows.push_back({w.file, begin, begin});
      FileWindow& last = windows.back();
      last.end = begin = std::min(end, last.begin + WindowReader::kBytes);
    }
  }
  return windows;
}

/// Verifies the window's blocks; `wanted` starts with the first piece in the window.
void verify(const FileWindow& window, std::span<const std::byte> bytes, std::span<const Wanted> wanted) {
  for (int64_t block = window.begin / kBlockBytes; block * kBlockBytes < window.end; ++block) {
    const int64_t begin = block * kBlockBytes, end = window.file->block_end(block);
    const auto problem = window.file->check_block(block, bytes.subspan(begin - window.begin, end - begin));
    if (!problem) continue;
    while (wanted.front().end <= begin) wanted = wanted.subspan(1);
    throw_damaged(window.file->path().parent_path(), *problem, window.file->path(), wanted.front().request->tensor);
  }
}

/// Copies the part of a piece that lies in the window.
void take(const Wanted& w, const FileWindow& window, std::span<const std::byte> bytes) {
  const int64_t begin = std::max(w.begin, window.begin), end = std::min(w.end, window.end);
  if (begin >= end) return;
  auto* target = static_cast<std::byte*>(w.request->data);
  const std::byte* source = bytes.data() - window.begin;
  if (w.tensor->dtype == w.request->dtype) {
    std::memcpy(target + (begin - w.begin), source + begin, static_cast<size_t>(end - begin));
    return;
  }
  const int64_t from = size_of(w.tensor->dtype), to = size_of(w.request->dtype);
  const int64_t first = (begin - w.begin + from - 1) / from, last = (end - w.begin) / from;
  convert(source + w.begin + first * from, w.tensor->dtype, target + first * to, w.request->dtype, last - first);
  if (w.begin + last * from == end) return;
  std::array<std::byte, 8> cut;  // an element across two windows: only in files without alignment
  w.file->read(w.begin + last * from, std::span(cut).first(from), w.request->tensor);
  convert(cut.data(), w.tensor->dtype, target + last * to, w.request->dtype, 1);
}

}  // namespace

const StoredTensor& Checkpoint::tensor(const std::string& name) const {
  const auto found = tensors.find(name);
  if (found != tensors.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [other, stored] : tensors) names.push_back(other);
  const auto near = base::nearest(name, names);
  fail_load(
      path,
      fmt::format("the checkpoint {} holds no tensor '{}'{}", path.string(), name,
                  near ? fmt::format("; the nearest name is '{}'", *near) : fmt::format(" among its {}", names.size())),
      name);
}

Checkpoint open_checkpoint(const fs::path& path, Advice advice) {
  if (fs::is_regular_file(path)) fail_load(path, base::make_a_folder_of(path.string()));
  if (!fs::is_directory(path))
    fail_load(path, fmt::format("there is no checkpoint {}: {}", path.string(),
                                fs::exists(path) ? "it is no folder" : "no such folder"));
  Checkpoint checkpoint{.path = path.has_filename() ? path : path.parent_path(), .state_json = "{}"};
  if (fs::exists(path / kManifestName)) {
    open_with_manifest(checkpoint, advice);
    return checkpoint;
  }
  if (fs::exists(path / kStateName)) {
    throw_damaged(checkpoint.path, fmt::format("{} is missing, so that nothing in it can be verified", kManifestName),
                  path / kManifestName, "", advice);
  }
  const std::vector<std::string> names = weight_files(path);
  if (names.empty()) refuse_folder_without_weights(path);
  for (const std::string& name : names) add_file(checkpoint, name, std::nullopt, advice);
  return checkpoint;
}

Checkpoint open_files(const fs::path& folder, std::span<const std::string> names) {
  Checkpoint checkpoint{.path = folder.has_filename() ? folder : folder.parent_path(), .state_json = "{}"};
  for (const std::string& name : names) add_file(checkpoint, name, std::nullopt, Advice::none);
  return checkpoint;
}

void check_tensors(const Checkpoint& checkpoint, std::span<const TensorSpec> expected, std::string_view way_out) {
  std::string first;
  std::string first_name;
  int64_t wrong = 0;
  for (const TensorSpec& spec : expected) {
    const auto found = checkpoint.tensors.find(spec.name);
    if (found != checkpoint.tensors.end() && found->second.shape == spec.shape) continue;
    if (wrong++ > 0) continue;
    first_name = spec.name;
    first = found == checkpoint.tensors.end()
                ? fmt::format("tensor '{}' of shape {} is missing", spec.name, shape_text(spec.shape))
                : fmt::format("tensor '{}' has shape {}, the model's is {}", spec.name, shape_text(found->second.shape),
                              shape_text(spec.shape));
  }
  if (wrong == 0) return;
  fail_load(checkpoint.path,
            fmt::format("the checkpoint {} is not of this model: {}{}; {}", checkpoint.path.string(), first,
                        wrong > 1 ? fmt::format(" (and {} more differ)", wrong - 1) : "", way_out),
            first_name);
}

void read_piece(const Checkpoint& checkpoint, const PieceRequest& request) {
  check_request(checkpoint, request);
  const StoredTensor& tensor = checkpoint.tensor(request.tensor);
  if (is_changed(checkpoint, request.tensor)) return read_changed(checkpoint, tensor, request);
  read_values(checkpoint, tensor, request);
}

void read_pieces(const Checkpoint& checkpoint, std::span<const PieceRequest> requests, PageCache cache) {
  const std::vector<Wanted> all = in_file_order(checkpoint, requests);
  const std::vector<FileWindow> windows = windows_of(all);
  std::vector<WindowReader::Window> to_read;
  for (const FileWindow& w : windows) to_read.push_back({&w.file->descriptor(), w.file->path(), w.begin, w.end});
  WindowReader reader(std::move(to_read), cache == PageCache::bypass);
  std::span<const Wanted> wanted = all;
  for (const FileWindow& window : windows) try {
      const std::span<const std::byte> bytes = reader.next();
      while (wanted.front().file != window.file || wanted.front().end <= window.begin) wanted = wanted.subspan(1);
      verify(window, bytes, wanted);
      for (const Wanted& w : wanted) {
        if (w.file != window.file || w.begin >= window.end) break;
        take(w, window, bytes);
      }
    } catch (const base::FileError& error) {
      throw_refused(error);
    }
  for (const PieceRequest& request : requests)
    if (request.begin < request.end && is_made(checkpoint, request.tensor)) read_piece(checkpoint, request);
}

std::string read_text(const Checkpoint& checkpoint, const std::string& name) {
  if (const auto given = checkpoint.texts.find(name); given != checkpoint.texts.end()) return given->second;
  std::optional<ManifestFile> expected;
  if (checkpoint.has_manifest) {
    const auto found = checkpoint.manifest.files.find(name);
    if (found == checkpoint.manifest.files.end()) {
      fail_load(checkpoint.path / name,
                fmt::format("the checkpoint {} was saved without a {}", checkpoint.path.string(), name));
    }
    expected = found->second;
  }
  return read_all(BlockFile(checkpoint.path / name, std::move(expected)));
}

}  // namespace trireme::checkpoint
