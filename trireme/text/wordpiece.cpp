#include "trireme/text/wordpiece.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/text/utf8.h"

namespace trireme::text {

WordPiece::WordPiece(Vocabulary vocabulary, WordPieceOptions options)
    : TokenModel(std::move(vocabulary)), options_(std::move(options)) {
  const auto unknown = vocabulary_.find(options_.unknown);
  if (!unknown) throw UsageError(fmt::format("the unknown token '{}' is not in the vocabulary", options_.unknown));
  unknown_ = *unknown;
  for (int32_t id = 0; id < vocabulary_.size(); ++id)
    longest_token_ = std::max(longest_token_, vocabulary_.token(id).size());
}

void WordPiece::encode(std::string_view piece, ModelScratch&, std::vector<int32_t>& out) const {
  int64_t characters = 0;
  for_each_character(piece, [&](char32_t, std::string_view) { ++characters; });
  const size_t before = out.size();
  const auto give_up = [&] {
    out.resize(before);
    out.push_back(unknown_);
  };
  if (characters > options_.longest_word) return give_up();
  std::string candidate;
  for (size_t begin = 0; begin < piece.size();) {
    size_t end = std::min(piece.size(), begin + longest_token_);
    std::optional<int32_t> id;
    for (; end > begin && !id; end -= id ? 0 : 1) {
      candidate = begin > 0 ? options_.prefix : "";
      candidate += piece.substr(begin, end - begin);
      id = vocabulary_.find(candidate);
    }
    if (!id) return give_up();
    out.push_back(*id);
    begin = end;
  }
}

}  // namespace trireme::text
