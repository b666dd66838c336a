// XXH3, 64 bits: finds damage in files at memory speed. Not a defence against forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trireme::base {

uint64_t checksum(std::span<const std::byte> bytes);

/// The same of a text.
inline uint64_t hash_text(std::string_view text) { return checksum(std::as_bytes(std::span(text))); }

/// The same value from pieces given in order.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;

  void update(std::span<const std::byte> bytes);
  uint64_t value() const;  ///< of all bytes so far; more may follow

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Sixteen lower-case hexadecimal digits, as manifests store it.
std::string checksum_text(uint64_t value);

}  // namespace trireme::base
