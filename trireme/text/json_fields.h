// Reads JSON objects. Errors name the place: "model.merges[3] is not a pair of strings".
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"

namespace trireme::text {

/// `text` for error messages: its first 100 bytes.
inline std::string shown(std::string_view text) { return base::shortened(text, 100); }

/// An object of a JSON file and its place in the file ("normalizer.normalizers[1]").
class JsonObject {
 public:
  JsonObject(nlohmann::json&&, std::string) = delete;  // `value` has to outlive this object
  JsonObject(const nlohmann::json& value, std::string place) : value_(value), place_(std::move(place)) {
    if (!value.is_object()) throw UsageError(fmt::format("{} is not an object", place_.empty() ? "its JSON" : place_));
  }

  const std::string& place() const { return place_; }
  std::string place_of(const std::string& key) const { return place_.empty() ? key : place_ + "." + key; }

  /// The value of `key`; null when there is none.
  const nlohmann::json* find(const std::string& key) const {
    const auto at = value_.find(key);
    return at == value_.end() || at->is_null() ? nullptr : &*at;
  }
  const nlohmann::json& at(const std::string& key) const {
    const nlohmann::json* found = find(key);
    if (found == nullptr) throw UsageError(fmt::format("{} is missing", place_of(key)));
    return *found;
  }
  JsonObject object(const std::string& key) const { return {at(key), place_of(key)}; }
  const nlohmann::json& array(const std::string& key) const {
    const nlohmann::json& found = at(key);
    if (!found.is_array()) throw UsageError(fmt::format("{} is not a list", place_of(key)));
    return found;
  }
  std::string text(const std::string& key) const {
    const nlohmann::json& found = at(key);
    if (!found.is_string()) throw UsageError(fmt::format("{} is not a string", place_of(key)));
    return found.get<std::string>();
  }
  std::string text(const std::string& key, const std::string& otherwise) const {
    return find(key) == nullptr ? otherwise : text(key);
  }
  int64_t integer(const std::string& key) const {
    const nlohmann::json& found = at(key);
    if (!base::is_whole_number(found)) throw UsageError(fmt::format("{} is not a whole number", place_of(key)));
    return found.get<int64_t>();
  }
  int64_t integer(const std::string& key, int64_t otherwise) const {
    return find(key) == nullptr ? otherwise : integer(key);
  }
  /// A whole number from 0 to 2^56, so that sums of counts cannot overflow.
  int64_t count(const std::string& key) const {
    const int64_t number = integer(key);
    if (number < 0 || number > (int64_t{1} << 56))
      throw UsageError(fmt::format("{} is {}, which is not a valid count", place_of(key), number));
    return number;
  }
  bool flag(const std::string& key, bool otherwise) const {
    const nlohmann::json* found = find(key);
    if (found == nullptr) return otherwise;
    if (!found->is_boolean()) throw UsageError(fmt::format("{} is neither true nor false", place_of(key)));
    return found->get<bool>();
  }

 private:
  const nlohmann::json& value_;
  std::string place_;
};

/// Parses `text` and returns what `read` makes of it.
/// Errors    UsageError "<name> <is_not_this>: <what is wrong>"
template <typename Read>
auto read_json(std::string_view text, std::string_view name, std::string_view is_not_this, Read read) {
  const nlohmann::json parsed = base::parse_json_if_sound(text);
  try {
    if (parsed.is_discarded()) throw UsageError("it is not JSON");
    return read(parsed);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{} {}: {}", name, is_not_this, error.what()));
  }
}

}  // namespace trireme::text
