// KeyReader: reads a config.json key by key; private to hugging_face_*.cpp. As in transformers, an absent key gets the
// default, null means what the class in transformers makes of it, and a value of the wrong type is refused.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/model/config.h"

namespace trireme::model {

class KeyReader {
 public:
  /// `source` begins every error message; `known` are keys that need not be read.
  KeyReader(const nlohmann::json& object, std::string source, std::set<std::string> known)
      : object_(object), source_(std::move(source)), known_(std::move(known)) {
    if (!object.is_object()) throw UsageError(fmt::format("{} is no JSON object", source_));
  }

  bool contains(const std::string& key) const { return object_.contains(key); }
  bool has(const std::string& key) const { return contains(key) && !object_[key].is_null(); }
  const nlohmann::json& at(const std::string& key) const { return object_.at(key); }
  const std::string& source() const { return source_; }
  void know(const std::string& key) { known_.insert(key); }

  /// The key's value; `fallback` if it is absent. Null is refused.
  template <typename T>
  T take(const std::string& key, T fallback) {
    know(key);
    return contains(key) ? typed<T>(key) : fallback;
  }

  /// The same for keys that may be null, which means `if_null`.
  template <typename T>
  T take(const std::string& key, T fallback, T if_null) {
    know(key);
    if (!contains(key)) return fallback;
    return has(key) ? typed<T>(key) : if_null;
  }

  /// A number that must be above 0.
  double take_positive(const std::string& key, double fallback) {
    const double value = take(key, fallback);
    if (contains(key) && !(value > 0)) refuse(key, "above 0");
    return value;
  }

  /// The key must have this value, or be absent.
  void require(const std::string& key, const nlohmann::json& only) {
    know(key);
    if (contains(key) && object_[key] != only)
      throw UsageError(fmt::format("{}: {} = {} is not supported; this model computes {} = {}", source_, key,
                                   object_[key].dump(), key, only.dump()));
  }

  /// The same, but null counts as absent.
  void require_or_null(const std::string& key, const nlohmann::json& only) {
    has(key) ? require(key, only) : know(key);
  }

  [[noreturn]] void refuse(const std::string& key, const char* rule) const {
    throw UsageError(fmt::format("{}: {} is {}; it must be {}", source_, key, object_.at(key).dump(), rule));
  }

  /// Those of `keys` that the object has and that say something: false, {} and [] do not. They count as read.
  std::vector<std::string> pass_over(const std::set<std::string>& keys) {
    std::vector<std::string> passed;
    for (const std::string& key : keys) {
      know(key);
      if (!has(key) || at(key) == false || (at(key).is_structured() && at(key).empty())) continue;
      passed.push_back(key);
    }
    return passed;
  }

  /// Refuses every key that was not read and is not null: it may change the mathematics.
  void refuse_unknown() const {
    for (const auto& [key, value] : object_.items())
      if (!known_.contains(key) && !value.is_null())
        throw UsageError(
            fmt::format("{}: the key {} is not known; it may change the mathematics, so it is refused", source_, key));
  }

 private:
  template <typename T>
  T typed(const std::string& key) const {
    const nlohmann::json& value = object_.at(key);
    if constexpr (std::is_same_v<T, bool>) {
      if (!value.is_boolean()) refuse(key, "true or false");
    } else if constexpr (std::is_same_v<T, int64_t>) {
      if (!base::is_whole_number(value)) refuse(key, "a whole number");
    } else if constexpr (std::is_same_v<T, double>) {
      if (!value.is_number()) refuse(key, "a number");
    } else {
      if (!value.is_string()) refuse(key, "a text");
    }
    return value.get<T>();
  }

  const nlohmann::json& object_;
  std::string source_;
  std::set<std::string> known_;
};

/// BERT, its relatives and our own encoder; and the labels of any model with a classification head
/// (hugging_face_classifier.cpp).
ModelConfig read_encoder(KeyReader& keys, ModelConfig config);
void read_labels(KeyReader& keys, ModelConfig& config);

/// Rotary settings (hugging_face_rope.cpp).
void read_rope(KeyReader& keys, ModelConfig& config);

}  // namespace trireme::model
