// A setting's type, for reading a value (value.cpp) and writing it (value_text.cpp).
#pragma once

#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "trireme/config/declaration.h"

namespace trireme::config {

template <typename T>
struct Optional : std::false_type {
  using Inner = T;
};
template <typename T>
struct Optional<std::optional<T>> : std::true_type {
  using Inner = T;
};

template <typename T>
struct List : std::false_type {};
template <typename T>
struct List<std::vector<T>> : std::true_type {};

using Pair = std::array<double, 2>;
using Milliseconds = std::chrono::milliseconds;

// Calls `visitor` with a null pointer to the setting's type, without std::optional.
template <typename Visitor>
auto visit_type(const Setting& setting, Visitor visitor) {
  return std::visit(
      [&](auto value) {
        using Held = std::remove_pointer_t<decltype(value)>;
        return visitor(static_cast<typename Optional<Held>::Inner*>(nullptr));
      },
      setting.value);
}

/// "at least 1 and below 2"; empty without bounds.
std::string bounds_text(const Rules& rules, bool seconds);

}  // namespace trireme::config
