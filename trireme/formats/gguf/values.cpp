// Metadata by key: the typed getters of GgufHeader.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/formats/gguf/gguf.h"
#include "trireme/text/utf8.h"

namespace trireme::formats {
namespace {

const GgufValue* find(const GgufHeader& header, std::string_view key) {
  const auto found = header.metadata.find(key);
  return found == header.metadata.end() ? nullptr : &found->second;
}

[[noreturn]] void refuse_value(const GgufHeader& header, std::string_view key, const std::string& problem) {
  throw CheckpointError(fmt::format("{} cannot be used: its '{}' {}", header.path, key, problem), header.path);
}

[[noreturn]] void refuse_kind(const GgufHeader& header, std::string_view key, const GgufValue& value,
                              std::string_view wanted) {
  refuse_value(header, key, fmt::format("is of type {}, not {}", gguf_kind_name(value.kind), wanted));
}

const GgufArray* find_array(const GgufHeader& header, std::string_view key) {
  const GgufValue* value = find(header, key);
  if (!value) return nullptr;
  const auto* array = std::get_if<GgufArray>(&value->value);
  if (!array) refuse_kind(header, key, *value, "a list");
  return array;
}

}  // namespace

std::optional<int64_t> GgufHeader::integer(std::string_view key) const {
  const GgufValue* value = find(*this, key);
  if (!value) return std::nullopt;
  if (const auto* number = std::get_if<int64_t>(&value->value)) return *number;
  const auto* number = std::get_if<uint64_t>(&value->value);
  if (!number) refuse_kind(*this, key, *value, "a whole number");
  if (*number > uint64_t{1} << 62) refuse_value(*this, key, fmt::format("is {}, too large", *number));
  return static_cast<int64_t>(*number);
}

std::optional<double> GgufHeader::number(std::string_view key) const {
  const GgufValue* value = find(*this, key);
  if (!value) return std::nullopt;
  if (const auto* number = std::get_if<double>(&value->value)) {
    if (!std::isfinite(*number)) refuse_value(*this, key, "is not a finite number");
    return *number;
  }
  return static_cast<double>(*integer(key));
}

std::optional<bool> GgufHeader::boolean(std::string_view key) const {
  const GgufValue* value = find(*this, key);
  if (!value) return std::nullopt;
  const auto* flag = std::get_if<bool>(&value->value);
  if (!flag) refuse_kind(*this, key, *value, "a bool");
  return *flag;
}

std::optional<std::string> GgufHeader::text(std::string_view key) const {
  const GgufValue* value = find(*this, key);
  if (!value) return std::nullopt;
  const auto* text = std::get_if<std::string_view>(&value->value);
  if (!text) refuse_kind(*this, key, *value, "text");
  if (!text::is_utf8(*text)) refuse_value(*this, key, "is not UTF-8");
  return std::string(*text);
}

std::optional<std::vector<std::string>> GgufHeader::texts(std::string_view key) const {
  const GgufArray* array = find_array(*this, key);
  if (!array) return std::nullopt;
  if (array->kind != GgufKind::string)
    refuse_value(*this, key, fmt::format("lists {}, not texts", gguf_kind_name(array->kind)));
  std::vector<std::string> result;
  const std::byte* position = array->bytes.data();
  for (int64_t i = 0; i < array->count; ++i) {
    uint64_t length;  // parse_gguf has checked all lengths
    std::memcpy(&length, position, 8);
    result.emplace_back(reinterpret_cast<const char*>(position) + 8, length);
    if (!text::is_utf8(result.back()))
      refuse_value(*this, key, fmt::format("has an item, number {}, that is not UTF-8", i));
    position += 8 + length;
  }
  return result;
}

std::optional<std::vector<int64_t>> GgufHeader::integers(std::string_view key) const {
  const GgufArray* array = find_array(*this, key);
  if (!array) return std::nullopt;
  const bool whole = array->kind != GgufKind::u64 && array->kind != GgufKind::f32 && array->kind != GgufKind::f64 &&
                     array->kind != GgufKind::string;
  if (array->count > 0 && !whole)
    refuse_value(*this, key, fmt::format("lists {}, not whole numbers", gguf_kind_name(array->kind)));
  const auto size = static_cast<int64_t>(gguf_kind_bytes(array->kind));
  std::vector<int64_t> result;
  for (int64_t i = 0; i < array->count; ++i)
    result.push_back(std::visit(
        [](const auto& value) -> int64_t {
          if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>) return static_cast<int64_t>(value);
          return 0;
        },
        gguf_scalar(array->kind, array->bytes.data() + i * size).value));
  return result;
}

std::optional<std::vector<float>> GgufHeader::numbers(std::string_view key) const {
  const GgufArray* array = find_array(*this, key);
  if (!array) return std::nullopt;
  if (array->kind != GgufKind::f32)
    refuse_value(*this, key, fmt::format("lists {}, not f32", gguf_kind_name(array->kind)));
  std::vector<float> result(array->count);
  if (!result.empty()) std::memcpy(result.data(), array->bytes.data(), result.size() * sizeof(float));
  return result;
}

}  // namespace trireme::formats
