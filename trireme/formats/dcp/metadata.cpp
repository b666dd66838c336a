// Reads and checks a `.metadata` pickle: the code that uses the result trusts its chunks, files and bytes.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/formats/dcp/dcp.h"

namespace trireme::formats {
namespace {

constexpr std::string_view kStorageModule = "torch.distributed.checkpoint.filesystem";
constexpr size_t kMaxBoxes = 4096;  ///< of a tensor cut in several dimensions: they are compared pair by pair

class MetadataReader {
 public:
  MetadataReader(const Pickle& pickle, ReadBudget& budget) : pickle_(pickle), budget_(budget) {}

  std::vector<DcpTensor> tensors() {
    if (!pickle_.call(pickle_.root(), kDcpModule, "Metadata")) fail("it is no Metadata object");
    const PickleId state = pickle_.state_of(pickle_.root());
    const PickleId described = pickle_.find(state, "state_dict_metadata");
    if (!pickle_.is_dict(described)) fail("it has no state_dict_metadata");
    collect_storage(pickle_.find(state, "storage_data"));
    const std::map<std::string_view, std::string> names = chosen_names(described, pickle_.find(state, "planner_data"));
    std::vector<DcpTensor> result;
    const std::span<const PickleId> items = pickle_.items(described);
    for (size_t i = 0; i < items.size(); i += 2) {
      const auto key = pickle_.text(items[i]);
      if (!key) fail("a tensor has no name");
      const auto name = names.find(*key);
      if (name == names.end() || !pickle_.call(items[i + 1], kDcpModule, "TensorStorageMetadata")) continue;
      result.push_back(tensor(*key, name->second, pickle_.state_of(items[i + 1])));
    }
    check_names(result);
    return result;
  }

 private:
  using Place = std::pair<std::string_view, std::vector<int64_t>>;  ///< name, offsets

  [[noreturn]] void fail(const std::string& problem, std::string_view tensor = "") const {
    throw CheckpointError(
        fmt::format("{} is not the metadata of a distributed checkpoint: {}", budget_.path(), problem), budget_.path(),
        std::string(tensor));
  }

  void collect_storage(PickleId storage) {
    if (!pickle_.is_dict(storage)) fail("it has no storage_data");
    const std::span<const PickleId> items = pickle_.items(storage);
    for (size_t i = 0; i < items.size(); i += 2) {
      if (!pickle_.call(items[i], kDcpModule, "MetadataIndex")) continue;
      const PickleId index = pickle_.state_of(items[i]);
      const auto name = pickle_.text(pickle_.find(index, "fqn"));
      if (!name) fail("an item has no name");
      const auto offsets = pickle_.integers(pickle_.find(index, "offset"));
      budget_.take(160 + static_cast<int64_t>(offsets ? offsets->size() * 8 : 0));
      storage_[{*name, offsets.value_or(std::vector<int64_t>())}] = items[i + 1];
    }
  }

  /// Keys and names of the tensors to read. planner_data has the path of each item in the saved dict: ("model",
  /// "layers.0.weight").
  std::map<std::string_view, std::string> chosen_names(PickleId described, PickleId planner) {
    std::map<std::string_view, std::string> all, inner;
    const std::span<const PickleId> items = pickle_.items(described);
    for (size_t i = 0; i < items.size(); i += 2)
      if (const auto key = pickle_.text(items[i])) remember(all, *key, std::string(*key));
    const std::span<const PickleId> paths = pickle_.is_dict(planner) ? pickle_.items(planner) : items.first(0);
    for (size_t i = 0; i < paths.size(); i += 2) {
      const auto key = pickle_.text(paths[i]);
      const std::span<const PickleId> path = pickle_.items(paths[i + 1]);
      if (!key || path.size() < 2 || path.size() > 32 || !all.contains(*key)) continue;
      const auto first = pickle_.text(path[0]);
      if (first && std::ranges::find(kTorchWrappers, *first) != std::end(kTorchWrappers))
        remember(inner, *key, path_text(path.subspan(1)));
    }
    return inner.empty() ? all : inner;
  }

  void remember(std::map<std::string_view, std::string>& names, std::string_view key, std::string name) {
    budget_.take(160 + 3 * std::ssize(name));
    names[key] = std::move(name);
  }

  std::string path_text(std::span<const PickleId> path) {
    std::string text;
    for (const PickleId part : path) {
      if (!text.empty()) text += '.';
      if (const auto key = pickle_.text(part)) text += *key;
      if (const auto number = pickle_.integer(part)) text += std::to_string(*number);
    }
    return text;
  }

  DcpTensor tensor(std::string_view key, const std::string& name, PickleId state) {
    const auto shape = pickle_.integers(pickle_.find(state, "size"));
    const PickleId properties = pickle_.state_of(pickle_.find(state, "properties"));
    const std::span<const PickleId> values = pickle_.items(properties);
    const PickleId type = pickle_.is_dict(properties) ? pickle_.find(properties, "dtype")
                          : values.empty()            ? 0
                                                      : values.front();
    const auto* global = std::get_if<const PickleGlobal*>(&pickle_.at(type));
    const std::optional<Dtype> dtype = global ? torch_dtype(*global) : std::nullopt;
    if (!shape) fail(fmt::format("tensor '{}' has no sound shape", key), key);
    if (!dtype)
      fail(fmt::format("tensor '{}' has the type {}, which is not read here; floats, whole numbers and bool are", key,
                       global ? (*global)->name : "unknown"),
           key);
    DcpTensor result{.tensor = {.name = name, .shape = *shape, .dtype = *dtype}, .chunks = {}};
    for (const PickleId chunk : pickle_.items(pickle_.find(state, "chunks")))
      result.chunks.push_back(read_chunk(key, pickle_.state_of(chunk)));
    check_coverage(result);
    return result;
  }

  DcpChunk read_chunk(std::string_view key, PickleId state) {
    const auto offsets = pickle_.integers(pickle_.find(state, "offsets"));
    const auto sizes = pickle_.integers(pickle_.find(state, "sizes"));
    if (!offsets || !sizes) fail(fmt::format("a chunk of tensor '{}' has no sound place", key), key);
    budget_.take(2 * static_cast<int64_t>(sizeof(DcpChunk) + offsets->size() * 16));
    auto found = storage_.find({key, *offsets});
    // A tensor that was not sharded may be stored without an offset.
    if (found == storage_.end() && std::all_of(offsets->begin(), offsets->end(), [](int64_t o) { return o == 0; }))
      found = storage_.find({key, {}});
    if (found == storage_.end())
      fail(fmt::format("the chunk of tensor '{}' at {} is stored nowhere", key, shape_text(*offsets)), key);
    const PickleId info = found->second;
    if (!pickle_.call(info, kStorageModule, "_StorageInfo"))
      fail(fmt::format("tensor '{}' is not stored in a file", key), key);
    const PickleId place = pickle_.state_of(info);
    const auto file = pickle_.text(pickle_.find(place, "relative_path"));
    const auto begin = pickle_.integer(pickle_.find(place, "offset"));
    const auto bytes = pickle_.integer(pickle_.find(place, "length"));
    if (!file || !checkpoint::is_plain_name(*file))
      fail(fmt::format("tensor '{}' is said to be in '{}', which is no file of the folder", key,
                       base::shortened(file.value_or(""), 200)),
           key);
    if (!begin || !bytes || *begin < 0 || *bytes < 0 || *bytes > INT64_MAX - *begin)
      fail(fmt::format("tensor '{}' has no sound place in {}", key, *file), key);
    if (!pickle_.items(pickle_.find(place, "transform_descriptors")).empty())
      fail(fmt::format("tensor '{}' is compressed; save it without extensions", key), key);
    budget_.take(std::ssize(*file));
    return {.offsets = *offsets, .sizes = *sizes, .file = std::string(*file), .begin = *begin, .bytes = *bytes};
  }

  /// Checks that the chunks lie inside the tensor, do not overlap, and fill it.
  void check_coverage(DcpTensor& described) {
    const TensorSpec& tensor = described.tensor;
    const auto broken = [&](const std::string& problem) {
      fail(fmt::format("tensor '{}' {} {}", tensor.name, shape_text(tensor.shape), problem), tensor.name);
    };
    int64_t total = 0, sum = 0;
    try {
      total = num_elements(tensor.shape);
      for (const DcpChunk& chunk : described.chunks) {
        bool inside = chunk.offsets.size() == tensor.shape.size() && chunk.sizes.size() == tensor.shape.size();
        for (size_t dim = 0; inside && dim < tensor.shape.size(); ++dim)
          inside = chunk.offsets[dim] >= 0 && chunk.sizes[dim] >= 0 && chunk.offsets[dim] <= tensor.shape[dim] &&
                   chunk.sizes[dim] <= tensor.shape[dim] - chunk.offsets[dim];
        if (!inside) broken(fmt::format("has a chunk {} at {}", shape_text(chunk.sizes), shape_text(chunk.offsets)));
        // The files limit what may be allocated: an element takes a byte at least, and no item is compressed.
        const int64_t elements = num_elements(chunk.sizes);
        if (elements > chunk.bytes)
          broken(fmt::format("has a chunk of {} elements in {} bytes", elements, chunk.bytes));
        if (__builtin_add_overflow(sum, elements, &sum)) broken("has overlapping chunks");
      }
    } catch (const ShapeError& error) {
      broken(error.what());
    }
    std::erase_if(described.chunks, [](const DcpChunk& chunk) { return num_elements(chunk.sizes) == 0; });
    if (sum != total) broken(fmt::format("has chunks of {} elements in all", sum));
    std::sort(described.chunks.begin(), described.chunks.end(),
              [](const DcpChunk& a, const DcpChunk& b) { return a.offsets < b.offsets; });
    if (overlap(described)) broken("has chunks that overlap");
  }

  /// The chunks have as many elements as the tensor, so without overlap there is no hole.
  bool overlap(const DcpTensor& described) const {
    const std::vector<DcpChunk>& chunks = described.chunks;
    if (described.tensor.shape.empty()) return chunks.size() > 1;
    const bool rows = std::all_of(chunks.begin(), chunks.end(), [&](const DcpChunk& chunk) {
      return std::equal(chunk.sizes.begin() + 1, chunk.sizes.end(), described.tensor.shape.begin() + 1);
    });
    if (rows) {
      for (size_t i = 1; i < chunks.size(); ++i)
        if (chunks[i].offsets[0] < chunks[i - 1].offsets[0] + chunks[i - 1].sizes[0]) return true;
      return false;
    }
    if (chunks.size() > kMaxBoxes)
      fail(fmt::format("tensor '{}' is cut into {} boxes; up to {} are read", described.tensor.name, chunks.size(),
                       kMaxBoxes),
           described.tensor.name);
    for (size_t i = 0; i < chunks.size(); ++i) {
      for (size_t j = i + 1; j < chunks.size(); ++j)
        if (meet(chunks[i], chunks[j])) return true;
    }
    return false;
  }

  static bool meet(const DcpChunk& a, const DcpChunk& b) {
    for (size_t dim = 0; dim < a.sizes.size(); ++dim)
      if (a.offsets[dim] + a.sizes[dim] <= b.offsets[dim] || b.offsets[dim] + b.sizes[dim] <= a.offsets[dim])
        return false;
    return true;
  }

  void check_names(const std::vector<DcpTensor>& tensors) const {
    std::vector<std::string_view> names;
    for (const DcpTensor& tensor : tensors) names.push_back(tensor.tensor.name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) fail(fmt::format("two tensors are called '{}'", *twice), *twice);
  }

  const Pickle& pickle_;
  ReadBudget& budget_;
  std::map<Place, PickleId> storage_;
};

}  // namespace

std::vector<DcpTensor> parse_dcp_metadata(std::string bytes, ReadBudget& budget) {
  const Pickle pickle(std::move(bytes), budget);
  return MetadataReader(pickle, budget).tensors();
}

}  // namespace trireme::formats
