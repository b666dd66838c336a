#include "trireme/formats/torch/archive.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme::formats {
namespace {

constexpr std::string_view kPickleName = "data.pkl";

constexpr std::pair<Dtype, std::string_view> kStorages[] = {
    {Dtype::f64, "DoubleStorage"},    {Dtype::f32, "FloatStorage"}, {Dtype::f16, "HalfStorage"},
    {Dtype::bf16, "BFloat16Storage"}, {Dtype::i64, "LongStorage"},  {Dtype::i32, "IntStorage"},
    {Dtype::i16, "ShortStorage"},     {Dtype::i8, "CharStorage"},   {Dtype::u8, "ByteStorage"},
    {Dtype::boolean, "BoolStorage"}};

const PickleGlobal* global_at(const Pickle& pickle, PickleId id) {
  const auto* value = std::get_if<const PickleGlobal*>(&pickle.at(id));
  return value ? *value : nullptr;
}

// ("storage", type, key, location, elements[, view]) if the value is a storage; else empty.
std::span<const PickleId> storage_items(const Pickle& pickle, PickleId id) {
  const std::optional<PickleId> tuple = pickle.persistent(id);
  const std::span<const PickleId> items = tuple ? pickle.items(*tuple) : std::span<const PickleId>();
  const bool sound = items.size() >= 5 && pickle.text(items[0]) == "storage" && pickle.text(items[2]);
  return sound ? items : std::span<const PickleId>();
}

// The first pickle of a row: the number 0x1950a86a20f9469cfc6c.
constexpr std::string_view kMagic("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);

}  // namespace

bool looks_like_torch_file(std::string_view head) {
  return looks_like_zip(head.substr(0, 4)) || head.starts_with(kMagic);
}

std::optional<Dtype> torch_dtype(const PickleGlobal* global) {
  if (!global || global->module != "torch") return std::nullopt;
  for (const auto& [dtype, storage] : kStorages)
    if (global->name == storage) return dtype;
  return checkpoint::parse_torch_name(global->name);
}

std::string_view torch_storage_name(Dtype dtype) {
  for (const auto& [known, storage] : kStorages)
    if (known == dtype) return storage;
  return "";
}

void check_convertible(const TensorSpec& tensor, Dtype dtype, const std::string& path) {
  if (convertible(tensor.dtype, dtype)) return;
  throw CheckpointError(fmt::format("tensor '{}' of {} is {} and cannot become {}", tensor.name, path,
                                    dtype_name(tensor.dtype), dtype_name(dtype)),
                        path, tensor.name);
}

TorchArchive::TorchArchive(std::span<const std::byte> archive, ReadBudget& budget)
    : archive_(archive), path_(budget.path()) {
  const std::string_view head(reinterpret_cast<const char*>(archive.data()), std::min<size_t>(archive.size(), 16));
  if (!looks_like_torch_file(head))
    throw CheckpointError(
        fmt::format("{} is no file of torch.save: it is neither a zip archive nor a row of pickles", path_), path_);
  looks_like_zip(head.substr(0, 4)) ? open_zip(budget) : open_row_of_pickles(budget);
}

void TorchArchive::open_zip(ReadBudget& budget) {
  const checkpoint::ReadBytes read = [&](int64_t offset, std::span<std::byte> target) {
    std::memcpy(target.data(), archive_.data() + offset, target.size());
  };
  entries_ = read_zip_directory(std::ssize(archive_), read, path_);
  for (const ZipEntry& entry : entries_) budget.take(static_cast<int64_t>(sizeof(entry) + entry.name.size()) + 1);
  const auto pickle = std::find_if(entries_.begin(), entries_.end(), [](const ZipEntry& entry) {
    const size_t slash = entry.name.find('/');
    return slash != std::string::npos && std::string_view(entry.name).substr(slash + 1) == kPickleName;
  });
  if (pickle == entries_.end()) fail("it has no data.pkl, so torch.save did not write it");
  top_ = pickle->name.substr(0, pickle->name.size() - kPickleName.size());
  std::sort(entries_.begin(), entries_.end(), [](const ZipEntry& a, const ZipEntry& b) { return a.name < b.name; });
  const bool program = std::any_of(entries_.begin(), entries_.end(),
                                   [&](const ZipEntry& entry) { return entry.name == top_ + "constants.pkl"; });
  if (program) fail("it is a TorchScript program; save the state_dict with torch.save instead");
  const std::span<const std::byte> order = find("byteorder");
  if (std::string_view(reinterpret_cast<const char*>(order.data()), order.size()) == "big")
    fail("its numbers are big-endian; load and save it on a little-endian machine");
  const std::span<const std::byte> bytes = find(std::string(kPickleName));
  pickle_ = std::make_unique<Pickle>(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), budget);
}

void TorchArchive::open_row_of_pickles(ReadBudget& budget) {
  std::string_view rest(reinterpret_cast<const char*>(archive_.data()), archive_.size());
  rest.remove_prefix(kMagic.size());
  const auto next = [&] {
    Pickle pickle = Pickle::first_of(rest, budget);
    rest.remove_prefix(pickle.bytes_read());
    return pickle;
  };
  if (const Pickle version = next(); version.integer(version.root()) != 1001)
    fail("its version is not 1001, the only one that torch.save has written");
  const Pickle machine = next();
  const auto* little = std::get_if<bool>(&machine.at(machine.find(machine.root(), "little_endian")));
  if (little == nullptr || !*little) fail("its numbers are big-endian; load and save it on a little-endian machine");
  pickle_ = std::make_unique<Pickle>(next());
  const Pickle keys = next();

  std::map<std::string_view, Dtype> dtypes;
  for (size_t i = 0; i < pickle_->size(); ++i) {
    const std::span<const PickleId> described = storage_items(*pickle_, static_cast<PickleId>(i));
    if (described.empty()) continue;
    if (described.size() > 5 && !pickle_->is_none(described[5]))
      fail("one of its storages is a view of another; load it and save it again with torch.save");
    const std::optional<Dtype> dtype = torch_dtype(global_at(*pickle_, described[1]));
    if (!dtype) fail("one of its storages has a type that is not read here; floats, whole numbers and bool are");
    budget.take(64);
    dtypes.emplace(*pickle_->text(described[2]), *dtype);
  }
  for (const PickleId id : keys.items(keys.root())) {
    const std::optional<std::string_view> key = keys.text(id);
    const auto dtype = key ? dtypes.find(*key) : dtypes.end();
    if (dtype == dtypes.end()) fail("it holds a storage that no tensor names");
    uint64_t elements = 0;
    if (rest.size() < sizeof(elements)) fail("it is cut off");
    std::memcpy(&elements, rest.data(), sizeof(elements));
    rest.remove_prefix(sizeof(elements));
    const uint64_t size = static_cast<uint64_t>(size_of(dtype->second));
    if (elements > rest.size() / size) fail("it is cut off");
    budget.take(static_cast<int64_t>(key->size()) + 64);
    storages_[std::string(*key)] = std::as_bytes(std::span(rest.substr(0, elements * size)));
    rest.remove_prefix(elements * size);
  }
}

void TorchArchive::fail(const std::string& problem, const std::string& tensor) const {
  throw CheckpointError(fmt::format("{} is not a sound PyTorch file: {}", path_, problem), path_, tensor);
}

std::span<const std::byte> TorchArchive::find(const std::string& name) const {
  const std::string whole = top_ + name;
  const auto found = std::lower_bound(entries_.begin(), entries_.end(), whole,
                                      [](const ZipEntry& entry, const std::string& key) { return entry.name < key; });
  if (found == entries_.end() || found->name != whole) return {};
  if (!found->stored) fail(fmt::format("'{}' is compressed; torch.save stores its entries as they are", whole));
  return archive_.subspan(found->begin, found->bytes);
}

std::span<const std::byte> TorchArchive::storage(const std::string& key) const {
  if (entries_.empty()) {
    const auto found = storages_.find(key);
    return found == storages_.end() ? std::span<const std::byte>() : found->second;
  }
  return find("data/" + key);
}

std::optional<StridedView> TorchArchive::view(PickleId id, const std::string& tensor) const {
  constexpr std::string_view kModule = "torch._utils";
  for (const std::string_view wrapper : {"_rebuild_parameter", "_rebuild_parameter_with_state"}) {
    const auto arguments = pickle_->call(id, kModule, wrapper);
    if (!arguments) continue;
    if (arguments->empty()) fail(fmt::format("parameter '{}' holds no tensor", tensor), tensor);
    id = arguments->front();
    break;
  }
  for (const std::string_view maker : {"_rebuild_tensor_v2", "_rebuild_tensor", "_rebuild_tensor_v3"})
    if (const auto arguments = pickle_->call(id, kModule, maker)) return make_view(*arguments, tensor);
  return std::nullopt;
}

/// Arguments: storage, offset, size, stride, requires_grad, hooks, and in version 3 the dtype of an untyped storage.
StridedView TorchArchive::make_view(std::span<const PickleId> arguments, const std::string& tensor) const {
  const auto broken = [&](std::string_view what) {
    fail(fmt::format("tensor '{}' has no sound {}", tensor, what), tensor);
  };
  if (arguments.size() < 4) broken("description");
  const std::span<const PickleId> described = storage_items(*pickle_, arguments[0]);
  if (described.empty()) broken("storage");
  const std::optional<int64_t> offset = pickle_->integer(arguments[1]);
  const auto shape = pickle_->integers(arguments[2]), stride = pickle_->integers(arguments[3]);
  if (!offset || *offset < 0 || !shape || !stride || shape->size() != stride->size()) broken("shape and strides");

  const PickleGlobal* type = global_at(*pickle_, described[1]);
  const bool untyped = type && type->name == "UntypedStorage";
  if (untyped) type = arguments.size() > 6 ? global_at(*pickle_, arguments[6]) : nullptr;
  const std::optional<Dtype> dtype = torch_dtype(type);
  if (!dtype)
    fail(fmt::format("tensor '{}' has the type {}, which is not read here; floats, whole numbers and bool are", tensor,
                     type ? type->name : "unknown"),
         tensor);
  if (arguments.size() > 6 && !untyped && !pickle_->items(arguments[6]).empty())
    fail(fmt::format("tensor '{}' is stored conjugated or negated; save it after resolve_conj() and resolve_neg()",
                     tensor),
         tensor);
  const std::string key(pickle_->text(described[2])->substr(0, 256));
  const std::span<const std::byte> bytes = storage(key);
  StridedView view{.data = bytes.data(), .dtype = *dtype, .shape = *shape, .stride = *stride};
  check_bounds(view, *offset, std::ssize(bytes) / size_of(*dtype), tensor);
  if (view.data) view.data += *offset * size_of(*dtype);
  return view;
}

void TorchArchive::check_bounds(const StridedView& view, int64_t offset, int64_t elements,
                                const std::string& tensor) const {
  int64_t count = 0;
  try {
    count = num_elements(view.shape);
  } catch (const ShapeError& error) {
    fail(fmt::format("tensor '{}': {}", tensor, error.what()), tensor);
  }
  if (count == 0) return;
  int64_t last = offset;
  bool sound = true;
  for (size_t dim = 0; dim < view.shape.size() && sound; ++dim) {
    int64_t reach = 0;
    sound = view.stride[dim] >= 0 && !__builtin_mul_overflow(view.shape[dim] - 1, view.stride[dim], &reach) &&
            !__builtin_add_overflow(last, reach, &last);
  }
  if (!sound || last >= elements)
    fail(fmt::format("tensor '{}' {} reaches beyond the {} elements of its storage", tensor, shape_text(view.shape),
                     elements),
         tensor);
  // An expanded tensor has far more elements than its storage. Refused, so that no tensor is larger than the file.
  if (count > std::ssize(archive_))
    fail(fmt::format("tensor '{}' {} repeats {} stored values; save it after contiguous()", tensor,
                     shape_text(view.shape), elements),
         tensor);
}

}  // namespace trireme::formats
