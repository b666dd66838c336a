#include "trireme/formats/torch/pickle.h"

#include <fmt/format.h>

namespace trireme::formats {

std::optional<std::string_view> Pickle::text(PickleId id) const {
  const auto* value = std::get_if<PickleText>(&values_[id]);
  return value ? std::optional(value->text) : std::nullopt;
}

std::optional<int64_t> Pickle::integer(PickleId id) const {
  const auto* value = std::get_if<int64_t>(&values_[id]);
  return value ? std::optional(*value) : std::nullopt;
}

std::span<const PickleId> pickle_items(const PickleValue& value) {
  if (const auto* list = std::get_if<PickleList>(&value)) return list->items;
  if (const auto* tuple = std::get_if<PickleTuple>(&value)) return tuple->items;
  if (const auto* dict = std::get_if<PickleDict>(&value)) return dict->items;
  return {};
}

PickleId Pickle::find(PickleId dict, std::string_view key) const {
  if (!is_dict(dict)) return 0;
  const std::span<const PickleId> all = items(dict);
  // The last entry of a key counts, as in Python.
  for (size_t i = all.size(); i >= 2; i -= 2)
    if (text(all[i - 2]) == key) return all[i - 1];
  return 0;
}

std::optional<std::span<const PickleId>> Pickle::call(PickleId id, std::string_view module,
                                                      std::string_view name) const {
  const auto* call = std::get_if<PickleCall>(&values_[id]);
  if (!call || !call->function->is(module, name)) return std::nullopt;
  return items(call->arguments);
}

PickleId Pickle::state_of(PickleId id) const {
  const auto* call = std::get_if<PickleCall>(&values_[id]);
  return call ? call->state : 0;
}

std::optional<PickleId> Pickle::persistent(PickleId id) const {
  const auto* value = std::get_if<PicklePersistent>(&values_[id]);
  return value ? std::optional(value->id) : std::nullopt;
}

std::optional<std::vector<int64_t>> Pickle::integers(PickleId id) const {
  const auto* tuple = std::get_if<PickleTuple>(&values_[id]);
  if (!tuple || tuple->items.size() > 64) return std::nullopt;
  std::vector<int64_t> values;
  for (const PickleId item : tuple->items) {
    const std::optional<int64_t> value = integer(item);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

PickleWriter& PickleWriter::integer(int64_t value) {
  if (value >= INT32_MIN && value <= INT32_MAX) {
    const auto small = static_cast<int32_t>(value);
    bytes_ += 'J';
    bytes_.append(reinterpret_cast<const char*>(&small), sizeof(small));
  } else {
    bytes_ += "\x8a\x08";
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return *this;
}

PickleWriter& PickleWriter::text(std::string_view value) {
  const auto length = static_cast<uint32_t>(value.size());
  bytes_ += 'X';
  bytes_.append(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes_ += value;
  return *this;
}

PickleWriter& PickleWriter::global(std::string_view module, std::string_view name) {
  bytes_ += fmt::format("c{}\n{}\n", module, name);
  return *this;
}

PickleWriter& PickleWriter::integers(std::span<const int64_t> values) {
  mark();
  for (const int64_t value : values) integer(value);
  return tuple();
}

}  // namespace trireme::formats
