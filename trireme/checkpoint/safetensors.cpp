#include "trireme/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/read_budget.h"

namespace trireme::checkpoint {
namespace {

std::string bytes_text(int64_t bytes) { return base::plural(bytes, "byte"); }

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

using nlohmann::json;

constexpr std::string_view kMetadataKey = "__metadata__";

[[noreturn]] void fail_safetensors(const std::string& path, const std::string& problem,
                                   const std::string& tensor = "") {
  throw CheckpointError(fmt::format("{} is not a sound safetensors file: {}", path, problem), path, tensor);
}

std::vector<int64_t> parse_integers(const json& value, const std::string& what, const std::string& path,
                                    const std::string& name) {
  if (!value.is_array()) fail_safetensors(path, fmt::format("{} of tensor '{}' is not a list", what, name), name);
  std::vector<int64_t> result;
  for (const json& item : value) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > uint64_t{1} << 62)
      fail_safetensors(
          path, fmt::format("{} of tensor '{}' holds {}, not a size", what, name, item.dump(-1, ' ', true)), name);
    result.push_back(item.get<int64_t>());
  }
  return result;
}

const json& member(const json& object, const char* key, const std::string& path, const std::string& name) {
  const auto found = object.find(key);
  if (found == object.end()) fail_safetensors(path, fmt::format("tensor '{}' has no {}", name, key), name);
  return *found;
}

TensorEntry parse_entry(const std::string& name, const json& value, int64_t data_begin, int64_t data_bytes,
                        const std::string& path) {
  if (!value.is_object()) fail_safetensors(path, fmt::format("the entry of tensor '{}' is not an object", name), name);
  const json& dtype_value = member(value, "dtype", path, name);
  const std::string dtype_text = dtype_value.is_string() ? dtype_value.get<std::string>() : "(no text)";
  const std::optional<Dtype> dtype = parse_dtype(dtype_text);
  if (!dtype) fail_safetensors(path, fmt::format("tensor '{}' has the unknown dtype {}", name, dtype_text), name);
  TensorEntry entry{.dtype = *dtype,
                    .shape = parse_integers(member(value, "shape", path, name), "the shape", path, name)};
  const std::vector<int64_t> offsets =
      parse_integers(member(value, "data_offsets", path, name), "data_offsets", path, name);
  if (offsets.size() != 2 || offsets[0] > offsets[1])
    fail_safetensors(path, fmt::format("data_offsets of tensor '{}' are not [begin, end]", name), name);
  if (offsets[1] > data_bytes)
    fail_safetensors(path,
                     fmt::format("tensor '{}' ends at byte {} of the data, but the file holds {}: it is truncated",
                                 name, offsets[1], bytes_text(data_bytes)),
                     name);
  int64_t bytes = 0;
  try {
    bytes = tensor_bytes(entry.shape, *dtype);
  } catch (const ShapeError& error) {
    fail_safetensors(path, fmt::format("tensor '{}': {}", name, error.what()), name);
  }
  if (bytes != offsets[1] - offsets[0])
    fail_safetensors(path,
                     fmt::format("tensor '{}' of shape {} and dtype {} does not fill its {}", name,
                                 shape_text(entry.shape), dtype_text, bytes_text(offsets[1] - offsets[0])),
                     name);
  entry.begin = data_begin + offsets[0];
  entry.end = data_begin + offsets[1];
  return entry;
}

/// No holes, no overlap, nothing left over.
void check_contiguous(const SafetensorsHeader& header, int64_t file_bytes, const std::string& path) {
  using Item = std::pair<std::pair<int64_t, int64_t>, const std::string*>;
  std::vector<Item> items;
  for (const auto& [name, entry] : header.tensors) items.push_back({{entry.begin, entry.end}, &name});
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.first < b.first; });
  int64_t position = header.data_begin;
  for (const auto& [range, name] : items) {
    if (range.first != position)
      fail_safetensors(path,
                       fmt::format("tensor '{}' begins at byte {}, but the one before it ends at {}: {}", *name,
                                   range.first, position, range.first < position ? "they overlap" : "there is a hole"),
                       *name);
    position = range.second;
  }
  if (position != file_bytes)
    fail_safetensors(path,
                     fmt::format("its tensors end at byte {}, but the file has {}", position, bytes_text(file_bytes)));
}

}  // namespace

SafetensorsHeader read_header(int64_t file_bytes, const ReadBytes& read, const std::string& path) {
  if (file_bytes < 8)
    fail_safetensors(path, fmt::format("it has {}, fewer than the 8 of the header's length", bytes_text(file_bytes)));
  uint64_t length = 0;
  read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > static_cast<uint64_t>(kMaxHeaderBytes))
    fail_safetensors(
        path, fmt::format("its header claims {} bytes, more than the {} allowed", length, bytes_text(kMaxHeaderBytes)));
  const auto header_bytes = static_cast<int64_t>(length);
  if (8 + header_bytes > file_bytes)
    fail_safetensors(path, fmt::format("its header needs {}, but the file has {}: it is truncated",
                                       bytes_text(8 + header_bytes), bytes_text(file_bytes)));
  std::string text(length, '\0');
  read(8, std::as_writable_bytes(std::span(text)));
  if (text.empty() || text.front() != '{') fail_safetensors(path, "its header does not begin with '{'");

  ReadBudget budget(file_bytes, path);
  budget.take(header_bytes);
  const json root = parse_json(text, 4, "a sound safetensors file", budget);
  SafetensorsHeader header{.data_begin = 8 + header_bytes};
  for (const auto& [name, value] : root.items()) {
    if (name == kMetadataKey) {
      if (!value.is_object()) fail_safetensors(path, "its __metadata__ is not an object");
      for (const auto& [key, item] : value.items()) {
        if (!item.is_string()) fail_safetensors(path, fmt::format("its __metadata__ '{}' is not text", key));
        header.metadata[key] = item.get<std::string>();
      }
    } else {
      header.tensors[name] = parse_entry(name, value, header.data_begin, file_bytes - header.data_begin, path);
    }
  }
  check_contiguous(header, file_bytes, path);
  return header;
}

std::string write_header(std::span<const TensorSpec> tensors, const std::map<std::string, std::string>& metadata) {
  // Written by hand, so that tensors come in the order of their bytes.
  std::string text = "{";
  std::set<std::string_view> seen;
  int64_t offset = 0;
  try {
    if (!metadata.empty()) text += fmt::format("\"{}\":{}", kMetadataKey, json(metadata).dump());
    for (const TensorSpec& tensor : tensors) {
      if (tensor.name == kMetadataKey || !seen.insert(tensor.name).second)
        throw CheckpointError(
            fmt::format("tensor name '{}' {}", tensor.name,
                        tensor.name == kMetadataKey ? "is reserved by safetensors" : "is given twice"),
            "", tensor.name);
      int64_t end = 0;
      if (__builtin_add_overflow(offset, tensor_bytes(tensor.shape, tensor.dtype), &end))
        throw CheckpointError("the tensors of a file claim more bytes than a file can hold", "", tensor.name);
      text +=
          fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", text.size() > 1 ? "," : "",
                      json(tensor.name).dump(), dtype_name(tensor.dtype), fmt::join(tensor.shape, ","), offset, end);
      offset = end;
    }
  } catch (const json::exception& error) {
    throw CheckpointError(fmt::format("a tensor name or metadata text is not UTF-8 ({})", base::json_reason(error)),
                          "");
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (std::ssize(text) > kMaxHeaderBytes)
    throw CheckpointError(
        fmt::format(
            "{} tensors need a header of {}, more than the {} that safetensors allows: lower the size of a file",
            tensors.size(), bytes_text(std::ssize(text)), bytes_text(kMaxHeaderBytes)),
        "");
  const uint64_t length = text.size();
  std::string prefix(8, '\0');
  std::memcpy(prefix.data(), &length, 8);
  return prefix + text;
}

}  // namespace trireme::checkpoint
