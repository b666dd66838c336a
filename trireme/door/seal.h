// Messages sealed for a transport that protects nothing: AES-256 in Galois/Counter Mode (NIST SP 800-38D). Who does
// not have the key can neither read them nor change, repeat, reorder or add one unnoticed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_cipher_st;

namespace trireme::door {

/// What makes a message the one that is expected. The same stamp twice under one key would open both to a reader.
struct Stamp {
  std::uint32_t stream;    ///< messages of a stream are counted
  std::uint64_t sequence;  ///< of the message in its stream
};

/// One key, safe to use by several threads at once.
class Seal {
 public:
  static constexpr std::size_t kKeyBytes = 32;
  /// What sealing adds: the length of the text, in the clear, and the mark that proves both.
  static constexpr std::size_t kOverhead = 8 + 16;

  /// Random bytes of the kernel's. Errors    Error where it gives none
  static std::string draw_key();

  /// A key of its own for each `purpose`, made from `key` (HMAC-SHA-256).
  /// Errors    Error where `key` has not kKeyBytes
  Seal(std::string_view key, std::string_view purpose);
  ~Seal();

  /// Writes text.size() + kOverhead bytes to `sealed`.
  /// Cost      about 0.2 ns a byte and a microsecond
  void close(std::span<const std::byte> text, Stamp stamp, std::byte* sealed) const;

  /// Writes the text, no longer than `room`, to `text`. False when this is not what was sealed with this key and
  /// stamp, or the text is longer; `room` is then all zeros.
  bool open(const std::byte* sealed, Stamp stamp, std::span<std::byte> room) const;

 private:
  std::array<unsigned char, kKeyBytes> key_;
  std::unique_ptr<evp_cipher_st, void (*)(evp_cipher_st*)> cipher_;
};

}  // namespace trireme::door
