#include "trireme/text/bpe.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/text/byte_alphabet.h"
#include "trireme/text/piece_cache.h"
#include "trireme/text/pre_tokenizer.h"
#include "trireme/text/utf8.h"

namespace trireme::text {
namespace {

constexpr size_t kMostMergedBytes = 4096;

struct BpeScratch final : ModelScratch {
  PieceCache cache;
  std::vector<int32_t> symbols;
};

}  // namespace

Bpe::Bpe(Vocabulary vocabulary, BpeOptions options) : TokenModel(std::move(vocabulary)), options_(std::move(options)) {
  find_symbols();
}

Bpe::Bpe(Vocabulary vocabulary, const Pairs& merges, BpeOptions options)
    : Bpe(std::move(vocabulary), std::move(options)) {
  merges_ = MergeTable(merges.size());
  const auto known = [&](const std::string& token, size_t rank) {
    const auto id = vocabulary_.find(token);
    if (!id) throw UsageError(fmt::format("merge {} is about '{}', which is not in the vocabulary", rank, token));
    return *id;
  };
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    if (!right.starts_with(options_.prefix))
      throw UsageError(
          fmt::format("merge {} is about '{}', which lacks the prefix '{}'", rank, right, options_.prefix));
    const int32_t whole = known(left + right.substr(options_.prefix.size()), rank);
    merges_.add(known(left, rank), known(right, rank), {static_cast<uint32_t>(rank), whole});
  }
}

std::unique_ptr<Bpe> Bpe::by_rank(Vocabulary vocabulary, const std::vector<uint32_t>& rank_of, BpeOptions options) {
  check_invariant(rank_of.size() == static_cast<size_t>(vocabulary.size()), "every token has a rank");
  std::unique_ptr<Bpe> bpe(new Bpe(std::move(vocabulary), std::move(options)));
  const Vocabulary& v = bpe->vocabulary_;
  const auto part = [&](std::string_view text) {
    const auto id = v.find(text);
    return id && rank_of[static_cast<size_t>(*id)] != MergeTable::kNone ? id : std::nullopt;
  };
  std::vector<std::array<int32_t, 3>> splits;
  for (int32_t id = 0; id < v.size(); ++id) {
    const std::string_view token = v.token(id);
    if (rank_of[static_cast<size_t>(id)] == MergeTable::kNone) continue;
    if (token.size() > kMostMergedBytes)  // all of its halves are looked for
      throw UsageError(fmt::format("the token {} has {} bytes, and one that merges make has {} at most", id,
                                   token.size(), kMostMergedBytes));
    for (size_t cut = 1; cut < token.size(); ++cut) {
      if ((static_cast<unsigned char>(token[cut]) & 0xC0) == 0x80) continue;  // inside a character
      const auto left = part(token.substr(0, cut)), right = left ? part(token.substr(cut)) : std::nullopt;
      if (left && right) splits.push_back({*left, *right, id});
    }
  }
  bpe->merges_ = MergeTable(splits.size());
  for (const auto& [left, right, id] : splits) bpe->merges_.add(left, right, {rank_of[static_cast<size_t>(id)], id});
  return bpe;
}

void Bpe::freeze(const std::vector<int32_t>& tokens) {
  std::vector<ByteTrie::Entry> entries;
  for (const int32_t id : tokens) entries.emplace_back(vocabulary_.token(id), id);
  frozen_ = ByteTrie(std::move(entries));
  has_frozen_ = !tokens.empty();
}

// Whether no token has a space (U+2581) after another character.
bool Bpe::never_merges_before_spaces() const {
  if (options_.byte_level || !options_.prefix.empty() || !options_.suffix.empty() || options_.ignore_merges ||
      !vocabulary_.find(kMetaspace))
    return false;
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    std::string_view token = vocabulary_.token(id);
    while (token.starts_with(kMetaspace)) token.remove_prefix(kMetaspace.size());
    if (token.find(kMetaspace) != std::string_view::npos) return false;
  }
  return true;
}

void Bpe::find_symbols() {
  bytes_ = vocabulary_.byte_tokens(options_.byte_level);
  cuts_at_spaces_ = never_merges_before_spaces();
  if (options_.unknown.empty()) return;
  unknown_ = vocabulary_.find(options_.unknown);
  if (!unknown_) throw UsageError(fmt::format("the unknown token '{}' is not in the vocabulary", options_.unknown));
}

std::unique_ptr<ModelScratch> Bpe::scratch() const { return std::make_unique<BpeScratch>(); }

std::optional<int32_t> Bpe::whole(std::string_view piece) const {
  return options_.byte_level ? vocabulary_.find(to_byte_letters(piece)) : vocabulary_.find(piece);
}

// One symbol a character, or the bytes of an unknown one.
void Bpe::characters_of(std::string_view piece, std::vector<int32_t>& out) const {
  bool unknown_waits = false;
  const auto flush = [&] {
    if (unknown_waits) out.push_back(*unknown_);
    unknown_waits = false;
  };
  std::string decorated;
  for (size_t at = 0; at < piece.size();) {
    size_t bytes = 1;
    std::string_view symbol;
    if (options_.byte_level) {
      decorated.clear();
      append_utf8(decorated, letter_of_byte(static_cast<unsigned char>(piece[at])));
      symbol = decorated;
    } else {
      bytes = static_cast<size_t>(character_at(piece, at).bytes);
      symbol = piece.substr(at, bytes);
    }
    const bool is_first = at == 0, is_last = at + bytes == piece.size();
    if ((!is_first && !options_.prefix.empty()) || (is_last && !options_.suffix.empty())) {
      decorated = (is_first ? "" : options_.prefix) + std::string(symbol) + (is_last ? options_.suffix : "");
      symbol = decorated;
    }
    at += bytes;
    if (const auto id = vocabulary_.find(symbol)) {
      flush();
      out.push_back(*id);
      continue;
    }
    if ((options_.byte_fallback && bytes_.append(symbol, out)) || !unknown_) continue;
    if (!options_.fuse_unknown) flush();
    unknown_waits = true;
  }
  flush();
}

void Bpe::symbols_of(std::string_view piece, std::vector<int32_t>& out) const {
  const bool is_plain = options_.byte_level && options_.prefix.empty() && options_.suffix.empty();
  if (!is_plain || !bytes_.append(piece, out)) characters_of(piece, out);
}

void Bpe::encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& out) const {
  if (!has_frozen_) return encode_unfrozen(piece, scratch, out);
  size_t done = 0;
  for (size_t at = 0; at < piece.size();) {
    size_t length = 0;
    int32_t id = -1;
    frozen_.for_each_prefix(piece.substr(at), [&](size_t found, int32_t value) { length = found, id = value; });
    if (id < 0) {
      at += static_cast<size_t>(character_at(piece, at).bytes);
      continue;
    }
    if (done < at) encode_unfrozen(piece.substr(done, at - done), scratch, out);
    out.push_back(id);
    done = at += length;
  }
  if (done < piece.size()) encode_unfrozen(piece.substr(done), scratch, out);
}

void Bpe::encode_unfrozen(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& out) const {
  while (cuts_at_spaces_) {
    size_t at = 0;  // past the spaces that begin this word, then to those of the next
    while (piece.substr(at).starts_with(kMetaspace)) at += kMetaspace.size();
    at = piece.find(kMetaspace, at);
    if (at == std::string_view::npos) break;
    encode_word(piece.substr(0, at), scratch, out);
    piece.remove_prefix(at);
  }
  if (!piece.empty()) encode_word(piece, scratch, out);
}

void Bpe::encode_word(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const {
  auto& s = static_cast<BpeScratch&>(scratch);
  const bool cached = word.size() <= PieceCache::kLongestPiece;
  uint64_t hash = 0;
  if (cached) {
    hash = PieceCache::hash(word);
    if (const auto ids = s.cache.find(word, hash)) {
      out.insert(out.end(), ids->begin(), ids->end());
      return;
    }
  }
  s.symbols.clear();
  const auto id = options_.ignore_merges ? whole(word) : std::nullopt;
  if (id) {
    s.symbols.push_back(*id);
  } else {
    symbols_of(word, s.symbols);
    merges_.merge_all(s.symbols);
  }
  if (cached) s.cache.insert(word, hash, s.symbols);
  out.insert(out.end(), s.symbols.begin(), s.symbols.end());
}

}  // namespace trireme::text
