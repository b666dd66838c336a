#include "trireme/data/token_view.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme::data {
namespace {

template <typename Id>
void widen(const std::byte* bytes, std::span<int64_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    Id id;
    std::memcpy(&id, bytes + i * sizeof(Id), sizeof(Id));  // nothing in these files is aligned
    out[i] = id;
  }
}

void widen(TokenType type, const std::byte* bytes, std::span<int64_t> out) {
  switch (type) {
    case TokenType::uint8:
      return widen<uint8_t>(bytes, out);
    case TokenType::int8:
      return widen<int8_t>(bytes, out);
    case TokenType::uint16:
      return widen<uint16_t>(bytes, out);
    case TokenType::int16:
      return widen<int16_t>(bytes, out);
    case TokenType::int32:
      return widen<int32_t>(bytes, out);
    case TokenType::int64:
      return widen<int64_t>(bytes, out);
  }
}

}  // namespace

int bytes_per_token(TokenType type) {
  switch (type) {
    case TokenType::uint8:
    case TokenType::int8:
      return 1;
    case TokenType::uint16:
    case TokenType::int16:
      return 2;
    case TokenType::int32:
      return 4;
    case TokenType::int64:
      return 8;
  }
  return 0;
}

TokenType token_type_for(int64_t vocab_size) {
  if (vocab_size <= 256) return TokenType::uint8;
  return vocab_size <= 65536 ? TokenType::uint16 : TokenType::int32;
}

TokenView::TokenView(std::shared_ptr<const std::byte> bytes, TokenType type, int64_t size)
    : TokenView(std::vector<Piece>{{.bytes = std::move(bytes)}}, type, size) {}

TokenView::TokenView(std::vector<Piece> pieces, TokenType type, int64_t size)
    : pieces_(std::make_shared<const std::vector<Piece>>(std::move(pieces))), type_(type), size_(size) {}

int64_t TokenView::operator[](int64_t index) const {
  int64_t token = 0;
  copy(index, {&token, 1});
  return token;
}

void TokenView::copy(int64_t first, std::span<int64_t> out) const {
  check_invariant(first >= 0 && first + static_cast<int64_t>(out.size()) <= size_,
                  "a window of tokens lies inside its corpus");
  if (out.empty()) return;
  int64_t at = begin_ + first;
  auto next = std::upper_bound(pieces_->begin(), pieces_->end(), at,
                               [](int64_t place, const Piece& piece) { return place < piece.first; });
  while (!out.empty()) {
    const Piece& piece = *std::prev(next);
    const auto rest = static_cast<int64_t>(out.size());
    const int64_t count = next == pieces_->end() ? rest : std::min(rest, next->first - at);
    widen(type_, piece.bytes.get() + (at - piece.first) * bytes_per_token(type_),
          out.first(static_cast<size_t>(count)));
    out = out.subspan(static_cast<size_t>(count));
    at += count;
    if (next != pieces_->end()) ++next;
  }
}

TokenView TokenView::sub(int64_t first, int64_t count) const {
  check_invariant(first >= 0 && count >= 0 && first + count <= size_, "a part of a corpus lies inside it");
  TokenView part = *this;
  part.begin_ += first;
  part.size_ = count;
  return part;
}

}  // namespace trireme::data
