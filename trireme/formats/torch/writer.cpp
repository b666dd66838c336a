#include "trireme/formats/torch/writer.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/checkpoint/disk.h"
#include "trireme/formats/torch/archive.h"

namespace trireme::formats {
namespace {

uint32_t add_crc32(uint32_t crc, const void* data, int64_t bytes) {
  return static_cast<uint32_t>(::crc32_z(crc, static_cast<const Bytef*>(data), static_cast<size_t>(bytes)));
}

/// Strides of a tensor without gaps; PyTorch counts a size of 0 as 1 here.
std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t step = 1;
  for (size_t dim = shape.size(); dim-- > 0;) {
    strides[dim] = step;
    // Overflow is only possible in a tensor without elements, whose strides are never used.
    if (__builtin_mul_overflow(step, std::max<int64_t>(shape[dim], 1), &step)) step = 1;
  }
  return strides;
}

}  // namespace

void write_tensor(PickleWriter& pickle, const TensorSpec& tensor, size_t key) {
  const std::string_view storage = torch_storage_name(tensor.dtype);
  const int64_t elements = num_elements(tensor.shape), bytes = tensor_bytes(tensor.shape, tensor.dtype);
  pickle.global("torch._utils", storage.empty() ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2").mark();
  pickle.mark().text("storage");
  if (storage.empty())
    pickle.global("torch.storage", "UntypedStorage");
  else
    pickle.global("torch", storage);
  pickle.text(std::to_string(key)).text("cpu");
  pickle.integer(storage.empty() ? bytes : elements).tuple().persistent();
  pickle.integer(0).integers(tensor.shape).integers(contiguous_strides(tensor.shape)).boolean(false);
  pickle.global("collections", "OrderedDict").empty_tuple().call();
  if (storage.empty()) pickle.global("torch", torch_name(tensor.dtype));
  pickle.tuple().call();
}

TorchArchiveWriter::TorchArchiveWriter(std::string pickle, std::span<const TensorSpec> tensors, int64_t first_byte)
    : first_byte_(first_byte) {
  const auto add_small = [&](const std::string& name, std::string contents) {
    layout_.add("archive/" + name, std::ssize(contents));
    crc32_.push_back(add_crc32(0, contents.data(), std::ssize(contents)));
    small_.push_back(std::move(contents));
  };
  add_small("data.pkl", std::move(pickle));
  add_small(".format_version", "1");
  add_small(".storage_alignment", "64");
  add_small("byteorder", "little");
  first_storage_ = small_.size();
  for (size_t i = 0; i < tensors.size(); ++i) {
    layout_.add(fmt::format("archive/data/{}", i), tensor_bytes(tensors[i].shape, tensors[i].dtype));
    crc32_.push_back(0);
  }
  add_small("version", "3\n");
}

void TorchArchiveWriter::write(const base::FileDescriptor& file, const std::filesystem::path& path, size_t tensor,
                               const TensorSpec& spec, int64_t begin, int64_t end, const void* data, Dtype dtype) {
  const size_t record = first_storage_ + tensor;
  if (!convertible(dtype, spec.dtype))
    throw CheckpointError(fmt::format("tensor '{}' cannot be stored as {}: its values are {}", spec.name,
                                      dtype_name(spec.dtype), dtype_name(dtype)),
                          path.string(), spec.name);
  checkpoint::write_elements(file, path, first_byte_ + layout_.records()[record].begin, spec.dtype, begin, end, data,
                             dtype, [&](std::span<const std::byte> bytes) {
                               crc32_[record] = add_crc32(crc32_[record], bytes.data(), std::ssize(bytes));
                             });
}

void TorchArchiveWriter::finish(const base::FileDescriptor& file, const std::filesystem::path& path) const {
  const auto put = [&](const std::string& text, int64_t offset) {
    base::write_at(file, std::as_bytes(std::span(text)), first_byte_ + offset, path);
  };
  const size_t num_records = layout_.records().size();
  for (size_t i = 0; i < num_records; ++i) {
    put(layout_.header(i, crc32_[i]), layout_.records()[i].header);
    if (i < first_storage_) put(small_[i], layout_.records()[i].begin);
  }
  put(small_.back(), layout_.records().back().begin);
  put(layout_.directory(crc32_), layout_.directory_begin());
}

}  // namespace trireme::formats
