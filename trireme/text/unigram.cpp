#include "trireme/text/unigram.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "trireme/base/error.h"
#include "trireme/text/utf8.h"

namespace trireme::text {
namespace {
constexpr double kUnknownPenalty = 10;
constexpr double kUserDefinedBonus = 0.1;  // for each byte but the first
// Beyond it, sums in single precision begin again at 0, as in sentencepiece: long texts keep their last digits.
constexpr float kLargestSum = 100000;
}  // namespace

Unigram::Unigram(Vocabulary vocabulary, std::vector<double> scores, UnigramOptions options)
    : TokenModel(std::move(vocabulary)), scores_(std::move(scores)), options_(std::move(options)) {
  const auto size = static_cast<size_t>(vocabulary_.size());
  if (scores_.size() != size) throw UsageError(fmt::format("{} tokens have {} scores", size, scores_.size()));
  std::vector<ByteTrie::Entry> entries;
  bool first = true;
  double least = 0;
  for (size_t id = 0; id < size; ++id) {
    if (!options_.matchable.empty() && !options_.matchable[id]) continue;
    entries.emplace_back(vocabulary_.token(static_cast<int32_t>(id)), static_cast<int32_t>(id));
    if (!options_.user_defined.empty() && options_.user_defined[id]) continue;
    least = first ? scores_[id] : std::min(least, scores_[id]);
    first = false;
  }
  trie_ = ByteTrie(std::move(entries));
  for (size_t id = 0; id < options_.user_defined.size(); ++id)
    if (options_.user_defined[id])
      scores_[id] = kUserDefinedBonus * static_cast<double>(vocabulary_.token(static_cast<int32_t>(id)).size() - 1);
  unknown_score_ = options_.single_precision ? static_cast<float>(least) - static_cast<float>(kUnknownPenalty)
                                             : least - kUnknownPenalty;
  bytes_ = vocabulary_.byte_tokens(/*as_letters=*/false);
  if (!options_.unknown && !(options_.byte_fallback && bytes_.is_complete))
    throw UsageError("the vocabulary has neither an unknown token nor one for every byte");
  if (options_.unknown && (*options_.unknown < 0 || static_cast<size_t>(*options_.unknown) >= size))
    throw UsageError(fmt::format("the unknown token's id {} is not in the vocabulary", *options_.unknown));
}

template <typename Score>
struct Unigram::Scratch final : ModelScratch {
  std::vector<Score> scores;      // by id
  std::vector<Node<Score>> best;  // by position of its end
  std::vector<int32_t> ends;      // of the tokens, from the last
};

std::unique_ptr<ModelScratch> Unigram::scratch() const {
  const auto filled = [&]<typename Score>(std::unique_ptr<Scratch<Score>> scratch) {
    for (const double score : scores_) scratch->scores.push_back(static_cast<Score>(score));
    return scratch;
  };
  if (options_.single_precision) return filled(std::make_unique<Scratch<float>>());
  return filled(std::make_unique<Scratch<double>>());
}

template <typename Score>
void Unigram::lower(std::vector<Node<Score>>& best, size_t begin, size_t end) {
  const Score offset = best[begin].score;
  for (size_t i = begin; i <= end; ++i)
    if (i == begin || best[i].begin >= 0) best[i].score -= offset;
}

template <typename Score>
void Unigram::find_best(std::string_view piece, Scratch<Score>& scratch) const {
  auto& best = scratch.best;
  best.assign(piece.size() + 1, {});
  const Score* scores = scratch.scores.data();
  const auto offer = [nodes = best.data()](size_t end, Score score, int32_t id, int32_t begin) {
    Node<Score>& node = nodes[end];
    if (node.begin < 0 || score > node.score) node = {score, id, begin};
  };
  size_t furthest = 0;  // end that has been offered
  for (size_t at = 0; at < piece.size();) {
    const auto here = static_cast<int32_t>(at);
    if (std::is_same_v<Score, float> && std::abs(best[at].score) > kLargestSum) lower(best, at, furthest);
    const Score so_far = best[at].score;
    const bool is_ascii = static_cast<unsigned char>(piece[at]) < 0x80;
    const size_t character = is_ascii ? 1 : static_cast<size_t>(character_at(piece, at).bytes);
    bool has_character = false;
    trie_.for_each_prefix(piece.substr(at), [&](size_t length, int32_t id) {
      offer(at + length, scores[id] + so_far, id, here);
      furthest = std::max(furthest, at + length);
      has_character = has_character || length == character;
    });
    if (!has_character) offer(at + character, static_cast<Score>(unknown_score_) + so_far, -1, here);
    at += character;
    furthest = std::max(furthest, at);
  }
}

void Unigram::append_unknown(std::string_view text, std::vector<int32_t>& out) const {
  if (options_.byte_fallback && bytes_.append(text, out)) return;
  if (options_.unknown) out.push_back(*options_.unknown);
}

void Unigram::encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& out) const {
  if (options_.single_precision) return encode_as(piece, static_cast<Scratch<float>&>(scratch), out);
  encode_as(piece, static_cast<Scratch<double>&>(scratch), out);
}

template <typename Score>
void Unigram::encode_as(std::string_view piece, Scratch<Score>& scratch, std::vector<int32_t>& out) const {
  find_best(piece, scratch);
  const auto& best = scratch.best;
  auto& ends = scratch.ends;
  ends.clear();
  for (auto end = static_cast<int32_t>(piece.size()); end > 0; end = best[static_cast<size_t>(end)].begin)
    ends.push_back(end);
  const auto node = [&](size_t i) { return best[static_cast<size_t>(ends[i])]; };
  const auto is_unknown = [&](int32_t id) { return id < 0 || (options_.unknown && id == *options_.unknown); };
  for (size_t i = ends.size(); i-- > 0;) {
    const Node<Score> last = node(i);
    if (!is_unknown(last.id)) {
      out.push_back(last.id);
      continue;
    }
    while (i > 0 && is_unknown(node(i - 1).id)) --i;  // unknown characters in a row are one
    append_unknown(piece.substr(static_cast<size_t>(last.begin), static_cast<size_t>(ends[i] - last.begin)), out);
  }
}

}  // namespace trireme::text
