#include "trireme/data/token_view.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme::data {
namespace {

template <typename Visit>
auto visit_type(TokenType type, Visit visit) {
  switch (type) {
    case TokenType::uint8:
      return visit(uint8_t{});
    case TokenType::int8:
      return visit(int8_t{});
    case TokenType::uint16:
      return visit(uint16_t{});
    case TokenType::int16:
      return visit(int16_t{});
    case TokenType::int32:
      return visit(int32_t{});
    case TokenType::int64:
      break;
  }
  return visit(int64_t{});
}

}  // namespace

int bytes_per_token(TokenType type) {
  return visit_type(type, [](auto id) { return static_cast<int>(sizeof id); });
}

TokenType token_type_for(int64_t vocab_size) {
  if (vocab_size <= 256) return TokenType::uint8;
  return vocab_size <= 65536 ? TokenType::uint16 : TokenType::int32;
}

TokenView::TokenView(std::shared_ptr<const std::byte> bytes, TokenType type, int64_t size)
    : TokenView(std::vector<Piece>{{.bytes = std::move(bytes)}}, type, size) {}

TokenView::TokenView(std::vector<Piece> pieces, TokenType type, int64_t size)
    : pieces_(std::make_shared<const std::vector<Piece>>(std::move(pieces))), type_(type), size_(size) {}

void TokenView::copy(int64_t first, std::span<int64_t> out) const {
  check_invariant(first >= 0 && first + static_cast<int64_t>(out.size()) <= size_,
                  "a window of tokens lies inside its corpus");
  if (out.empty()) return;
  int64_t at = first;
  auto next = std::upper_bound(pieces_->begin(), pieces_->end(), at,
                               [](int64_t place, const Piece& piece) { return place < piece.first; });
  while (!out.empty()) {
    const Piece& piece = *std::prev(next);
    const auto rest = static_cast<int64_t>(out.size());
    const int64_t count = next == pieces_->end() ? rest : std::min(rest, next->first - at);
    const std::byte* bytes = piece.bytes.get() + (at - piece.first) * bytes_per_token(type_);
    visit_type(type_, [&](auto id) {
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        std::memcpy(&id, bytes + i * sizeof id, sizeof id);  // nothing in these files is aligned
        out[i] = id;
      }
    });
    out = out.subspan(static_cast<size_t>(count));
    at += count;
    if (next != pieces_->end()) ++next;
  }
}

}  // namespace trireme::data
