// Encrypts and authenticates messages for a transport that protects nothing: AES-256 in Galois/Counter Mode (NIST SP
// 800-38D). Without the key nobody can read them, or change, repeat, reorder or insert one unnoticed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_cipher_st;

namespace trireme::store {

/// The number of a message, which both sides know. Using a stamp twice under one key would let a listener decrypt both.
struct Stamp {
  std::uint32_t stream;  ///< each stream numbers its messages
  std::uint64_t sequence;  ///< of the message in its stream
};

/// One key, safe to use by several threads at once.
class Seal {
 public:
  static constexpr std::size_t kKeyBytes = 32;
  /// The bytes that sealing adds: the unencrypted length of the text, and the tag that authenticates both.
  static constexpr std::size_t kOverhead = 8 + 16;

  /// Random bytes from the kernel. Errors    Error if it gives none
  static std::string draw_key();

  /// Encrypts with a key that is derived from `key` for this `purpose` (HMAC-SHA-256).
  /// Errors    Error if `key` does not have kKeyBytes
  Seal(std::string_view key, std::string_view purpose);
  ~Seal();

  /// Writes text.size() + kOverhead bytes to `sealed`.
  /// Cost      about 0.2 ns a byte and a microsecond
  void close(std::span<const std::byte> text, Stamp stamp, std::byte* sealed) const;

  /// Writes the text to `room`. False if `sealed` was not made with this key and stamp, or if the text is longer than
  /// `room`, which is then all zeros.
  bool open(const std::byte* sealed, Stamp stamp, std::span<std::byte> room) const;

 private:
  std::array<unsigned char, kKeyBytes> key_;
  std::unique_ptr<evp_cipher_st, void (*)(evp_cipher_st*)> cipher_;
};

}  // namespace trireme::store
