#include "trireme/data/unigram.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/data/utf8.h"

namespace trireme::data {
namespace {
constexpr double kUnknownPenalty = 10;
}

Unigram::Unigram(Vocabulary vocabulary, std::vector<double> scores, UnigramOptions options)
    : vocabulary_(std::move(vocabulary)), scores_(std::move(scores)), options_(std::move(options)) {
  const auto size = static_cast<size_t>(vocabulary_.size());
  if (scores_.size() != size) throw UsageError(fmt::format("{} tokens have {} scores", size, scores_.size()));
  size_t bytes = 0;
  for (size_t id = 0; id < size; ++id) bytes += vocabulary_.token(static_cast<int32_t>(id)).size();
  trie_ = ByteTrie(bytes);
  bool first = true;
  double least = 0;
  for (size_t id = 0; id < size; ++id) {
    if (!options_.matchable.empty() && !options_.matchable[id]) continue;
    trie_.add(vocabulary_.token(static_cast<int32_t>(id)), static_cast<int32_t>(id));
    if (!options_.user_defined.empty() && options_.user_defined[id]) continue;
    least = first ? scores_[id] : std::min(least, scores_[id]);
    largest_score_ = first ? scores_[id] : std::max(largest_score_, scores_[id]);
    first = false;
  }
  unknown_score_ = add(least, -kUnknownPenalty);
  for (int byte = 0; byte < 256; ++byte) {
    const auto id = vocabulary_.find(fmt::format("<0x{:02X}>", byte));
    byte_[static_cast<size_t>(byte)] = id.value_or(-1);
    has_every_byte_ = has_every_byte_ && id.has_value();
  }
  if (!options_.unknown && !(options_.byte_fallback && has_every_byte_))
    throw UsageError("the vocabulary has neither an unknown token nor one for every byte");
  if (options_.unknown && (*options_.unknown < 0 || static_cast<size_t>(*options_.unknown) >= size))
    throw UsageError(fmt::format("the unknown token's id {} is not in the vocabulary", *options_.unknown));
}

void Unigram::find_best(std::string_view piece, std::vector<Node>& best) const {
  best.assign(piece.size() + 1, {});
  const auto offer = [&](size_t end, Node node) {
    if (best[end].begin < 0 || node.score > best[end].score) best[end] = node;
  };
  for (size_t at = 0; at < piece.size();) {
    const auto here = static_cast<int32_t>(at);
    const double so_far = best[at].score;
    const auto character = static_cast<size_t>(character_at(piece.data() + at, piece.data() + piece.size()).bytes);
    bool has_character = false;
    trie_.for_each_prefix(piece.substr(at), [&](size_t length, int32_t id) {
      const bool is_users = !options_.user_defined.empty() && options_.user_defined[static_cast<size_t>(id)];
      const double score =
          is_users ? add(static_cast<double>(length) * largest_score_, -0.1) : scores_[static_cast<size_t>(id)];
      offer(at + length, {add(score, so_far), id, here});
      has_character = has_character || length == character;
    });
    if (!has_character) offer(at + character, {add(unknown_score_, so_far), -1, here});
    at += character;
  }
}

void Unigram::append_unknown(std::string_view text, std::vector<int32_t>& out) const {
  const auto byte_id = [&](char byte) { return byte_[static_cast<unsigned char>(byte)]; };
  if (options_.byte_fallback && std::all_of(text.begin(), text.end(), [&](char b) { return byte_id(b) >= 0; })) {
    for (const char byte : text) out.push_back(byte_id(byte));
  } else if (options_.unknown) {
    out.push_back(*options_.unknown);
  }
}

void Unigram::encode(std::string_view piece, ModelScratch&, std::vector<int32_t>& out) const {
  std::vector<Node> best;
  find_best(piece, best);
  std::vector<std::pair<size_t, size_t>> cuts;  // from the end
  for (size_t end = piece.size(); end > 0; end = cuts.back().first)
    cuts.emplace_back(static_cast<size_t>(best[end].begin), end);
  const auto is_unknown = [&](int32_t id) { return id < 0 || (options_.unknown && id == *options_.unknown); };
  for (size_t i = cuts.size(); i-- > 0;) {
    const int32_t id = best[cuts[i].second].id;
    if (!is_unknown(id)) {
      out.push_back(id);
      continue;
    }
    const size_t begin = cuts[i].first;  // unknown characters in a row are one
    while (i > 0 && is_unknown(best[cuts[i - 1].second].id)) --i;
    append_unknown(piece.substr(begin, cuts[i].second - begin), out);
  }
}

}  // namespace trireme::data
