#include "trireme/formats/gguf/tensors.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/checkpoint/disk.h"
#include "trireme/formats/vocabulary.h"

namespace trireme::formats {
namespace {

constexpr int64_t kTensorAlignment = 32;
constexpr int64_t kPiece = 1 << 16;  ///< elements converted at a time: 256 KiB of float32

int64_t aligned(int64_t position) { return (position + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment; }

template <class T>
  requires std::is_arithmetic_v<T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void append(std::string& bytes, std::string_view text) {
  append(bytes, uint64_t{text.size()});
  bytes.append(text);
}

int64_t bytes_of(const GgufTarget& tensor) {
  const GgufTypeInfo& type = info(tensor.type);
  const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (row % type.block_elements != 0)
    throw CheckpointError(fmt::format("tensor '{}' {} cannot be {}: its rows are no multiple of {}", tensor.name,
                                      shape_text(tensor.shape), type.name, type.block_elements),
                          "", tensor.name);
  return num_elements(tensor.shape) / type.block_elements * type.block_bytes;
}

/// Everything before the data, padded; `begins` are the tensors' offsets in the file.
std::string head(const GgufMetadata& metadata, std::span<const GgufTarget> tensors, std::vector<int64_t>& begins) {
  std::string bytes = "GGUF";
  append(bytes, uint32_t{3});
  append(bytes, uint64_t{tensors.size()});
  append(bytes, metadata.count());
  bytes += metadata.bytes();
  int64_t offset = 0;
  for (const GgufTarget& tensor : tensors) {
    append(bytes, tensor.name);
    append(bytes, static_cast<uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size)
      append(bytes, static_cast<uint64_t>(*size));
    append(bytes, static_cast<uint32_t>(tensor.type));
    append(bytes, static_cast<uint64_t>(offset));
    begins.push_back(offset);
    offset = aligned(offset + bytes_of(tensor));
  }
  bytes.resize(aligned(std::ssize(bytes)), '\0');
  for (int64_t& begin : begins) begin += std::ssize(bytes);
  return bytes;
}

int64_t end_of_file(const std::string& head, std::span<const GgufTarget> tensors, std::span<const int64_t> begins) {
  if (tensors.empty()) return std::ssize(head);
  return aligned(begins.back() + bytes_of(tensors.back()));  // readers expect padding after the last tensor too
}

}  // namespace

GgufSource::GgufSource(const std::filesystem::path& path)
    : map_(path), header_(parse_gguf(map_.bytes(), path.string())), descriptor_(base::open_file(path, O_RDONLY)) {
  for (const GgufTensor& tensor : header_.tensors)
    tensors_.push_back({.name = tensor.name, .shape = tensor.shape, .dtype = info(tensor.type).dtype});
}

void GgufSource::read(size_t index, int64_t begin, int64_t end, void* data, Dtype dtype) const {
  const GgufTensor& tensor = header_.tensors.at(index);
  const GgufTypeInfo& type = info(tensor.type);
  check_invariant(0 <= begin && begin <= end && end <= tensor.elements, "a piece lies inside its tensor");
  if (!convertible(type.dtype, dtype))
    throw CheckpointError(fmt::format("tensor '{}' of {} holds floating-point numbers, not {}", tensor.name,
                                      header_.path, dtype_name(dtype)),
                          header_.path, tensor.name);
  auto* out = static_cast<std::byte*>(data);
  std::vector<std::byte> blocks;
  std::vector<float> values;
  while (begin < end) {
    const int64_t first = begin / type.block_elements;
    const int64_t last =
        std::min((end + type.block_elements - 1) / type.block_elements, first + kPiece / type.block_elements);
    const int64_t stop = std::min(end, last * type.block_elements);
    blocks.resize((last - first) * type.block_bytes);
    base::read_at(descriptor_, blocks, tensor.begin + first * type.block_bytes, header_.path);
    if (type.block_elements == 1) {
      checkpoint::convert(blocks.data(), type.dtype, out, dtype, stop - begin);
    } else {
      values.resize((last - first) * type.block_elements);
      dequantize(tensor.type, blocks.data(), values.data(), last - first);
      checkpoint::convert(values.data() + (begin - first * type.block_elements), Dtype::f32, out, dtype, stop - begin);
    }
    out += (stop - begin) * size_of(dtype);
    begin = stop;
  }
}

base::BlockFormat GgufSource::blocks_of(size_t index) const { return block_format_of(header_.tensors.at(index).type); }

void GgufSource::read_blocks(size_t index, int64_t begin, int64_t end, std::byte* to) const {
  const GgufTensor& tensor = header_.tensors.at(index);
  const GgufTypeInfo& type = info(tensor.type);
  check_invariant(begin % type.block_elements == 0 && end % type.block_elements == 0 && end <= tensor.elements,
                  "whole blocks are read");
  const auto bytes = static_cast<size_t>((end - begin) / type.block_elements * type.block_bytes);
  base::read_at(descriptor_, {to, bytes}, tensor.begin + begin / type.block_elements * type.block_bytes, header_.path);
}

void GgufMetadata::begin(std::string_view key, GgufKind kind) {
  append(bytes_, key);
  append(bytes_, static_cast<uint32_t>(kind));
  ++count_;
}

void GgufMetadata::add(std::string_view key, Scalar value) {
  constexpr GgufKind kKinds[] = {GgufKind::u32, GgufKind::f32, GgufKind::boolean, GgufKind::string};
  begin(key, kKinds[value.index()]);
  std::visit([&](auto v) { append(bytes_, v); }, value);
}

template <class T>
void GgufMetadata::add_list(std::string_view key, GgufKind kind, std::span<const T> values) {
  begin(key, GgufKind::array);
  append(bytes_, static_cast<uint32_t>(kind));
  append(bytes_, uint64_t{values.size()});
  for (const T& value : values) append(bytes_, value);
}

void GgufMetadata::add(std::string_view key, std::span<const std::string> values) {
  add_list(key, GgufKind::string, values);
}
void GgufMetadata::add(std::string_view key, std::span<const int32_t> values) { add_list(key, GgufKind::i32, values); }
void GgufMetadata::add(std::string_view key, std::span<const float> values) { add_list(key, GgufKind::f32, values); }

GgufSink::GgufSink(const std::filesystem::path& path, const GgufMetadata& metadata, std::vector<GgufTarget> tensors)
    : path_(path), tensors_(std::move(tensors)) {
  const std::string first = head(metadata, tensors_, begins_);
  file_ = checkpoint::create_file(path_, end_of_file(first, tensors_, begins_));
  base::write_at(file_, std::as_bytes(std::span(first)), 0, path_);
}

int64_t GgufSink::file_bytes(const GgufMetadata& metadata, std::span<const GgufTarget> tensors) {
  std::vector<int64_t> begins;
  const std::string first = head(metadata, tensors, begins);
  return end_of_file(first, tensors, begins);
}

void GgufSink::write(size_t index, int64_t begin, int64_t end, const void* data, Dtype dtype) {
  const GgufTarget& tensor = tensors_.at(index);
  const GgufTypeInfo& type = info(tensor.type);
  check_invariant(begin % type.block_elements == 0 && end % type.block_elements == 0, "pieces are whole blocks");
  const auto* in = static_cast<const std::byte*>(data);
  std::vector<float> values;
  std::vector<std::byte> blocks;
  while (begin < end) {
    const int64_t count = std::min(end - begin, kPiece);
    blocks.resize(count / type.block_elements * type.block_bytes);
    if (type.block_elements == 1) {
      checkpoint::convert(in, dtype, blocks.data(), type.dtype, count);
    } else {
      values.resize(count);
      checkpoint::convert(in, dtype, values.data(), Dtype::f32, count);
      if (!quantize(block_format_of(tensor.type), values.data(), blocks.data(), count / type.block_elements))
        throw CheckpointError(fmt::format("tensor '{}' holds values that are not finite or too large for {}: write "
                                          "the file with --dtype bfloat16",
                                          tensor.name, type.name),
                              path_.string(), tensor.name);
    }
    base::write_at(file_, blocks, begins_[index] + begin / type.block_elements * type.block_bytes, path_);
    in += count * size_of(dtype);
    begin += count;
  }
}

void GgufSink::finish() { checkpoint::flush(file_, path_); }

}  // namespace trireme::formats
