// Reads JSON objects with errors that name the place: "model.merges[3] is not a pair of strings".
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "trireme/base/error.h"

namespace trireme::data {

/// `text` as an error shows it: its first 100 bytes.
inline std::string shown(std::string_view text) {
  return text.size() <= 100 ? std::string(text) : fmt::format("{}...", text.substr(0, 100));
}

/// An object of a JSON file and where it stands in it ("normalizer.normalizers[1]").
class JsonObject {
 public:
  JsonObject(nlohmann::json&&, std::string) = delete;  // refers to `value`, which has to stay
  JsonObject(const nlohmann::json& value, std::string place) : value_(value), place_(std::move(place)) {
    if (!value.is_object()) throw UsageError(fmt::format("{} is not an object", place_));
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
    if (!found.is_number_integer()) throw UsageError(fmt::format("{} is not a whole number", place_of(key)));
    return found.get<int64_t>();
  }
  int64_t integer(const std::string& key, int64_t otherwise) const {
    return find(key) == nullptr ? otherwise : integer(key);
  }
  /// Zero or more, and few enough (2^56) that sums of counts cannot overflow.
  int64_t count(const std::string& key) const {
    const int64_t number = integer(key);
    if (number < 0 || number > (int64_t{1} << 56))
      throw UsageError(fmt::format("{} is {}, which is no count", place_of(key), number));
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

}  // namespace trireme::data
