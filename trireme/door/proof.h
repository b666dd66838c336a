// What shows that a process knows a secret, without showing the secret: HMAC-SHA-256 (RFC 2104) over words that both
// sides have chosen at random.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace trireme::door {

using Proof = std::array<unsigned char, 32>;

/// Errors    Error where OpenSSL has no SHA-256
Proof prove(std::string_view key, std::string_view text);

/// Whether `shown` is the proof of `text`, in a time that does not depend on where they differ.
bool proves(std::string_view shown, std::string_view key, std::string_view text);

/// `count` random bytes of the system's, fit for keys. Errors    Error where it gives none
std::string draw_bytes(std::size_t count);

}  // namespace trireme::door
