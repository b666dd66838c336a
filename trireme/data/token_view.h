// A row of token ids in mapped files: one file (Megatron's .bin), or several one after the other (litdata's chunks).
// Copying a view copies no token. Each copy keeps the files mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace trireme::data {

/// How one id is stored; little-endian.
enum class TokenType { uint8, int8, uint16, int16, int32, int64 };

int bytes_per_token(TokenType type);

/// The narrowest of uint8, uint16 and int32 that holds ids below `vocab_size`. Trireme writes these three.
TokenType token_type_for(int64_t vocab_size);

class TokenView {
 public:
  /// A run of ids that lie side by side. `bytes` keeps its file mapped.
  struct Piece {
    std::shared_ptr<const std::byte> bytes;
    int64_t first = 0;  ///< its place among the ids of all pieces
  };

  TokenView() = default;
  TokenView(std::shared_ptr<const std::byte> bytes, TokenType type, int64_t size);
  /// `pieces` in order, the first one at 0.
  TokenView(std::vector<Piece> pieces, TokenType type, int64_t size);

  int64_t size() const { return size_; }
  TokenType type() const { return type_; }

  /// Writes tokens [first, first + out.size()) to `out`; InternalError if the row ends before.
  void copy(int64_t first, std::span<int64_t> out) const;

 private:
  std::shared_ptr<const std::vector<Piece>> pieces_;
  TokenType type_ = TokenType::uint8;
  int64_t size_ = 0;
};

}  // namespace trireme::data
