#include "trireme/formats/gguf/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/formats/vocabulary.h"
#include "trireme/text/utf8.h"

namespace trireme::formats {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF as read here is little-endian");

constexpr uint64_t kMostKeys = 1 << 16;
constexpr uint64_t kMostTensors = 1 << 18;
constexpr uint64_t kLongestName = 1 << 16;  // the format's limit for keys; names of tensors have at most 64
constexpr int kMostDims = 4;
constexpr int64_t kLargestAlignment = 1 << 16;

constexpr std::array<std::string_view, 13> kKindNames{"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                      "bool", "string", "array", "u64", "i64", "f64"};
constexpr std::array<size_t, 13> kKindBytes{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

[[noreturn]] void fail_gguf(const std::string& path, const std::string& problem, const std::string& tensor = "") {
  throw CheckpointError(fmt::format("{} is not a sound GGUF file: {}", path, problem), path, tensor);
}

template <class T>
T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

/// Reads the file from front to back; reading beyond its end is an error that says what was read.
class Cursor {
 public:
  Cursor(std::span<const std::byte> file, const std::string& path) : file_(file), path_(path) {}

  template <class T>
  T read(std::string_view what) {
    return load<T>(take(sizeof(T), what).data());
  }

  std::span<const std::byte> take(uint64_t bytes, std::string_view what) {
    if (bytes > file_.size() - position_)
      fail_gguf(path_, fmt::format("{} needs {} at byte {}, but the file has {}: it is truncated or damaged", what,
                                   base::plural(static_cast<int64_t>(std::min(bytes, uint64_t{1} << 62)), "byte"),
                                   position_, base::plural(std::ssize(file_), "byte")));
    const auto taken = file_.subspan(position_, bytes);
    position_ += bytes;
    return taken;
  }

  std::string_view text(std::string_view what) {
    const auto bytes = take(read<uint64_t>(what), what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::string name(std::string_view what) {
    const std::string_view name = text(what);
    if (name.empty() || name.size() > kLongestName || !text::is_utf8(name))
      fail_gguf(path_, fmt::format("{} that ends at byte {} is empty, too long or not UTF-8", what, position_));
    return std::string(name);
  }

  GgufKind kind(const std::string& key) {
    const auto number = read<uint32_t>(fmt::format("the type of '{}'", key));
    if (number >= kKindNames.size())
      fail_gguf(path_, fmt::format("'{}' has a value of the unknown type {}", key, number));
    return static_cast<GgufKind>(number);
  }

  GgufValue value(const std::string& key) {
    const GgufKind of = kind(key);
    const std::string what = fmt::format("the value of '{}'", key);
    if (of == GgufKind::string) return {of, text(what)};
    if (of == GgufKind::array) return {of, array(key, what)};
    return gguf_scalar(of, take(gguf_kind_bytes(of), what).data());
  }

  GgufArray array(const std::string& key, const std::string& what) {
    const GgufKind of = kind(key);
    if (of == GgufKind::array)
      fail_gguf(path_, fmt::format("'{}' is a list of lists, which GGUF readers do not take", key));
    const auto count = read<uint64_t>(what);
    const uint64_t item = of == GgufKind::string ? 8 : gguf_kind_bytes(of);
    if (count > (file_.size() - position_) / item)
      fail_gguf(path_, fmt::format("'{}' claims {} items, more than the rest of the file holds", key, count));
    const size_t begin = position_;
    if (of == GgufKind::string)
      for (uint64_t i = 0; i < count; ++i) text(what);
    else
      take(count * item, what);
    return {of, static_cast<int64_t>(count), file_.subspan(begin, position_ - begin)};
  }

  size_t position() const { return position_; }

 private:
  std::span<const std::byte> file_;
  const std::string& path_;
  size_t position_ = 0;
};

void check_type(uint32_t number, const GgufTensor& tensor, const std::string& path) {
  if (find_gguf_type(number)) return;
  throw CheckpointError(
      fmt::format("tensor '{}' of {} is of type {}, which Trireme does not read: it reads F32, F16, BF16, Q4_0, Q4_1, "
                  "Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K; take that model's F16 or Q8_0 file, or make one with "
                  "llama-quantize --allow-requantize",
                  tensor.name, path, gguf_type_name(number)),
      path, tensor.name);
}

/// begin and end are still relative to the start of the data, which is not yet known.
GgufTensor read_tensor(Cursor& cursor, const std::string& path) {
  GgufTensor tensor{.name = cursor.name("the name of a tensor")};
  const std::string what = fmt::format("the entry of tensor '{}'", tensor.name);
  const auto fail = [&](const std::string& problem) {
    fail_gguf(path, fmt::format("tensor '{}' {}", tensor.name, problem), tensor.name);
  };
  const auto dims = cursor.read<uint32_t>(what);
  if (dims > kMostDims) fail(fmt::format("has {} dimensions, the format allows {}", dims, kMostDims));
  for (uint32_t i = 0; i < dims; ++i) {
    const auto size = cursor.read<uint64_t>(what);
    if (size == 0 || size > uint64_t{1} << 62) fail(fmt::format("has a dimension of {}", size));
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
  }
  const auto number = cursor.read<uint32_t>(what);
  const auto offset = cursor.read<uint64_t>(what);
  check_type(number, tensor, path);
  const GgufTypeInfo& type = *find_gguf_type(number);
  tensor.type = type.type;
  try {
    tensor.elements = num_elements(tensor.shape);
  } catch (const ShapeError& error) {
    fail(fmt::format("is impossible: {}", error.what()));
  }
  const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (row % type.block_elements != 0)
    fail(fmt::format("has rows of {} elements, {} needs a multiple of {}", row, type.name, type.block_elements));
  int64_t bytes = 0;
  if (offset > uint64_t{1} << 62 ||
      __builtin_mul_overflow(tensor.elements / type.block_elements, type.block_bytes, &bytes) ||
      __builtin_add_overflow(static_cast<int64_t>(offset), bytes, &tensor.end))
    fail("does not fit in any file");
  tensor.begin = static_cast<int64_t>(offset);
  return tensor;
}

int64_t alignment_of(const GgufHeader& header) {
  const int64_t alignment = header.integer("general.alignment").value_or(32);
  if (alignment < 1 || alignment > kLargestAlignment || !std::has_single_bit(static_cast<uint64_t>(alignment)))
    fail_gguf(header.path,
              fmt::format("general.alignment is {}, not a power of two up to {}", alignment, kLargestAlignment));
  return alignment;
}

/// Makes offsets absolute, and checks that tensors are aligned, inside the file, and do not overlap.
void place_tensors(GgufHeader& header, int64_t file_bytes) {
  const int64_t alignment = alignment_of(header);
  header.data_begin = (header.data_begin + alignment - 1) / alignment * alignment;
  std::vector<const GgufTensor*> ordered;
  for (GgufTensor& tensor : header.tensors) {
    if (tensor.begin % alignment != 0)
      fail_gguf(header.path,
                fmt::format("tensor '{}' begins at {}, not at a multiple of {}", tensor.name, tensor.begin, alignment),
                tensor.name);
    if (tensor.end > file_bytes - header.data_begin)
      fail_gguf(
          header.path,
          fmt::format("tensor '{}' ends at byte {} of the data, but the file holds {}: it is truncated", tensor.name,
                      tensor.end, base::plural(std::max<int64_t>(file_bytes - header.data_begin, 0), "byte")),
          tensor.name);
    tensor.begin += header.data_begin;
    tensor.end += header.data_begin;
    ordered.push_back(&tensor);
  }
  std::sort(ordered.begin(), ordered.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  for (size_t i = 1; i < ordered.size(); ++i) {
    if (ordered[i]->begin < ordered[i - 1]->end)
      fail_gguf(header.path, fmt::format("tensors '{}' and '{}' overlap", ordered[i - 1]->name, ordered[i]->name),
                ordered[i]->name);
  }
  std::sort(ordered.begin(), ordered.end(), [](const GgufTensor* a, const GgufTensor* b) { return a->name < b->name; });
  for (size_t i = 1; i < ordered.size(); ++i)
    if (ordered[i]->name == ordered[i - 1]->name)
      fail_gguf(header.path, fmt::format("it names tensor '{}' twice", ordered[i]->name), ordered[i]->name);
}

void check_version(uint32_t version, const std::string& path) {
  if (version == 2 || version == 3) return;
  if ((version & 0xffff) == 0)
    throw CheckpointError(fmt::format("{} is a big-endian GGUF file, Trireme reads little-endian ones: convert it with "
                                      "gguf-convert-endian of PyPI gguf",
                                      path),
                          path);
  throw CheckpointError(fmt::format("{} is GGUF version {}, Trireme reads versions 2 and 3", path, version), path);
}

}  // namespace

std::string_view gguf_kind_name(GgufKind kind) { return kKindNames.at(static_cast<size_t>(kind)); }

size_t gguf_kind_bytes(GgufKind kind) { return kKindBytes.at(static_cast<size_t>(kind)); }

GgufValue gguf_scalar(GgufKind kind, const std::byte* bytes) {
  switch (kind) {
    case GgufKind::u8:
      return {kind, uint64_t{load<uint8_t>(bytes)}};
    case GgufKind::i8:
      return {kind, int64_t{load<int8_t>(bytes)}};
    case GgufKind::u16:
      return {kind, uint64_t{load<uint16_t>(bytes)}};
    case GgufKind::i16:
      return {kind, int64_t{load<int16_t>(bytes)}};
    case GgufKind::u32:
      return {kind, uint64_t{load<uint32_t>(bytes)}};
    case GgufKind::i32:
      return {kind, int64_t{load<int32_t>(bytes)}};
    case GgufKind::f32:
      return {kind, double{load<float>(bytes)}};
    case GgufKind::boolean:
      return {kind, load<uint8_t>(bytes) != 0};
    case GgufKind::u64:
      return {kind, load<uint64_t>(bytes)};
    case GgufKind::i64:
      return {kind, load<int64_t>(bytes)};
    default:
      return {kind, load<double>(bytes)};
  }
}

GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& path) {
  Cursor cursor(file, path);
  if (cursor.read<uint32_t>("the head") != 0x46554747u) fail_gguf(path, "it does not begin with 'GGUF'");
  GgufHeader header{.path = path, .version = cursor.read<uint32_t>("the version")};
  check_version(header.version, path);
  const auto num_tensors = cursor.read<uint64_t>("the head");
  const auto num_keys = cursor.read<uint64_t>("the head");
  if (num_tensors > kMostTensors || num_keys > kMostKeys)
    fail_gguf(path, fmt::format("it claims {} tensors and {} keys; at most {} and {} are taken", num_tensors, num_keys,
                                kMostTensors, kMostKeys));
  for (uint64_t i = 0; i < num_keys; ++i) {
    std::string key = cursor.name("a key");
    GgufValue value = cursor.value(key);
    if (!header.metadata.emplace(key, value).second) fail_gguf(path, fmt::format("it has the key '{}' twice", key));
  }
  for (uint64_t i = 0; i < num_tensors; ++i) header.tensors.push_back(read_tensor(cursor, path));
  header.data_begin = static_cast<int64_t>(cursor.position());
  place_tensors(header, std::ssize(file));
  return header;
}

}  // namespace trireme::formats
