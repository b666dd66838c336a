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

}  // namespace

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
  const std::string_view text(reinterpret_cast<const char*>(archive.data()), archive.size());
  if (!looks_like_zip(text.substr(0, 4)))
    throw CheckpointError(fmt::format("{} is no zip archive as torch.save has written since PyTorch 1.6: open it with "
                                      "torch.load and save it again with torch.save",
                                      path_),
                          path_);
  const checkpoint::ReadBytes read = [&](int64_t offset, std::span<std::byte> target) {
    std::memcpy(target.data(), archive_.data() + offset, target.size());
  };
  entries_ = read_zip_directory(std::ssize(archive), read, path_);
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
  const auto* persistent = std::get_if<PicklePersistent>(&pickle_->at(arguments[0]));
  const std::span<const PickleId> storage = persistent ? pickle_->items(persistent->id) : std::span<const PickleId>();
  if (storage.size() < 5 || pickle_->text(storage[0]) != "storage" || !pickle_->text(storage[2])) broken("storage");
  const std::optional<int64_t> offset = pickle_->integer(arguments[1]);
  const auto shape = pickle_->integers(arguments[2]), stride = pickle_->integers(arguments[3]);
  if (!offset || *offset < 0 || !shape || !stride || shape->size() != stride->size()) broken("shape and strides");

  const PickleGlobal* type = global_at(*pickle_, storage[1]);
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
  const std::string key(pickle_->text(storage[2])->substr(0, 256));
  const std::span<const std::byte> bytes = find("data/" + key);
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
