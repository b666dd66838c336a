// Proves that a process knows a secret without revealing it: HMAC-SHA-256 (RFC 2104) over random bytes that both sides
// have chosen.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace trireme::store {

using Proof = std::array<unsigned char, 32>;

/// Errors    Error if OpenSSL has no SHA-256
Proof prove(std::string_view key, std::string_view text);

/// Whether `shown` is the proof of `text`. The time it takes does not depend on where the two differ.
bool proves(std::string_view shown, std::string_view key, std::string_view text);

/// `count` random bytes from the system, fit for keys. Errors    Error if it gives none
std::string draw_bytes(std::size_t count);

}  // namespace trireme::store
