// XXH3, 64 bits: detects damaged files, at the speed of memory. It does not protect against forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace trireme::base {

uint64_t checksum(std::span<const std::byte> bytes);

/// The checksum of a text.
inline uint64_t hash_text(std::string_view text) { return checksum(std::as_bytes(std::span(text))); }

/// The same checksum from pieces, which are given in order.
class Checksum {
 public:
  Checksum();
  void update(std::span<const std::byte> bytes);
  uint64_t value() const;  ///< of all bytes so far; more may follow

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

/// Sixteen lower-case hexadecimal digits, as manifests store it.
std::string checksum_text(uint64_t value);

}  // namespace trireme::base
