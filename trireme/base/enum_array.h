// EnumArray: one T for each of the N enumerators of E, which are 0 .. N - 1.
#pragma once

#include <array>
#include <cstddef>

namespace trireme::base {

template <typename E, size_t N, typename T>
struct EnumArray {
  std::array<T, N> values{};

  T& operator[](E e) { return values[static_cast<size_t>(e)]; }
  const T& operator[](E e) const { return values[static_cast<size_t>(e)]; }
  auto begin() { return values.begin(); }
  auto begin() const { return values.begin(); }
  auto end() { return values.end(); }
  auto end() const { return values.end(); }
  bool operator==(const EnumArray&) const = default;
};

}  // namespace trireme::base
