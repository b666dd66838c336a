#include "trireme/text/tokenizer_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/mix64.h"
#include "trireme/text/bpe.h"
#include "trireme/text/sentencepiece_normalizer.h"
#include "trireme/text/unigram.h"

namespace trireme::text {
namespace {

using Type = SentencePieceFile::Type;

Vocabulary read_vocabulary(const SentencePieceFile& file) {
  Vocabulary vocabulary;
  vocabulary.reserve(file.pieces.size());
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const auto& piece = file.pieces[id];
    if (piece.text.empty()) throw UsageError(fmt::format("piece {} is empty", id));
    if (piece.type == Type::unused) throw UsageError(fmt::format("piece {} is of the type UNUSED", id));
    vocabulary.add(piece.text, static_cast<int64_t>(id));
  }
  return vocabulary;
}

std::vector<int32_t> ids_of(const SentencePieceFile& file, Type type) {
  std::vector<int32_t> ids;
  for (size_t id = 0; id < file.pieces.size(); ++id)
    if (file.pieces[id].type == type) ids.push_back(static_cast<int32_t>(id));
  return ids;
}

// Higher scores merge first; equal scores share a rank, so that the leftmost wins.
std::vector<uint32_t> ranks_of(const SentencePieceFile& file) {
  const auto merges = [](Type type) { return type == Type::normal || type == Type::user_defined; };
  std::map<float, uint32_t, std::greater<>> rank_of_score;
  for (const auto& piece : file.pieces)
    if (merges(piece.type)) rank_of_score.emplace(piece.score, 0);
  uint32_t next = 0;
  for (auto& [score, rank] : rank_of_score) rank = next++;
  std::vector<uint32_t> ranks;
  for (const auto& piece : file.pieces)
    ranks.push_back(merges(piece.type) ? rank_of_score.at(piece.score) : MergeTable::kNone);
  return ranks;
}

std::unique_ptr<TokenModel> read_bpe(const SentencePieceFile& file, const std::string& unknown) {
  auto bpe = Bpe::by_rank(read_vocabulary(file), ranks_of(file),
                          {.byte_fallback = file.byte_fallback, .fuse_unknown = true, .unknown = unknown});
  bpe->freeze(ids_of(file, Type::user_defined));
  return bpe;
}

std::unique_ptr<TokenModel> read_unigram(const SentencePieceFile& file, std::optional<int32_t> unknown) {
  UnigramOptions options{.unknown = unknown, .byte_fallback = file.byte_fallback, .single_precision = true};
  std::vector<double> scores;
  for (const auto& piece : file.pieces) {
    scores.push_back(piece.score);
    options.matchable.push_back(piece.type == Type::normal || piece.type == Type::user_defined);
    options.user_defined.push_back(piece.type == Type::user_defined);
  }
  return std::make_unique<Unigram>(read_vocabulary(file), std::move(scores), std::move(options));
}

}  // namespace

TokenizerParts parse_sentencepiece_model(std::string_view bytes, const std::string& path,
                                         std::span<const AddedToken> beside) try {
  const SentencePieceFile file = parse_sentencepiece(bytes);
  if (file.treat_whitespace_as_suffix)
    throw UsageError("spaces behind words (treat_whitespace_as_suffix) are not known");
  const std::vector<int32_t> unknown = ids_of(file, Type::unknown), control = ids_of(file, Type::control);
  if (unknown.size() != 1) throw UsageError(fmt::format("{} pieces are of the type UNKNOWN, not 1", unknown.size()));
  const std::string& unknown_text = file.pieces[static_cast<size_t>(unknown[0])].text;
  TokenizerParts parts;
  if (file.model == SentencePieceFile::Model::bpe) {
    parts.model = read_bpe(file, unknown_text);
  } else if (file.model == SentencePieceFile::Model::unigram) {
    parts.model = read_unigram(file, unknown[0]);
  } else {
    throw UsageError("word and character models are not known; BPE and Unigram are");
  }
  const auto normalize = std::make_shared<const SentencePieceNormalizer>(file);
  parts.normalizer.add([normalize](const std::string& text) { return (*normalize)(text); },
                       [normalize](const std::string& text) { return (*normalize)(text, true); });
  std::vector<AddedToken> added;
  for (const int32_t id : control)
    added.push_back({.id = id, .content = file.pieces[static_cast<size_t>(id)].text, .special = true});
  uint64_t known_beside = 0;
  for (const AddedToken& token : beside) {
    if (token.id < std::ssize(file.pieces)) continue;
    added.push_back(token);
    known_beside = base::mix_key(
        known_beside,
        base::hash_text(fmt::format("{} {} {:d}{:d}{:d}{:d}{:d}", token.id, token.content, token.single_word,
                                    token.lstrip, token.rstrip, token.normalized, token.special)));
  }
  parts.added = AddedTokens(std::move(added), [](std::string_view text) { return std::string(text); });
  parts.decoder.add(DecodeSentencePiece{.unknown = unknown_text,
                                        .unknown_surface = file.unknown_surface,
                                        .drop_first = file.add_dummy_prefix,
                                        .drop_all = file.remove_extra_whitespaces});
  const auto inside = [&](int32_t id) {
    return id >= 0 && static_cast<size_t>(id) < file.pieces.size() ? std::optional(id) : std::nullopt;
  };
  parts.bos = inside(file.bos_id);
  parts.eos = inside(file.eos_id);
  if (parts.bos) parts.before = {*parts.bos};
  parts.hides_special = true;
  parts.name = file.model == SentencePieceFile::Model::bpe ? "SentencePiece BPE" : "SentencePiece Unigram";
  parts.fingerprint = base::hash_text(bytes);
  if (known_beside != 0) parts.fingerprint = base::mix_key(parts.fingerprint, known_beside);
  // Ties and long texts have other ids than with the first encoding of these.
  if (file.model == SentencePieceFile::Model::unigram) parts.fingerprint = base::mix_key(parts.fingerprint, 2);
  return parts;
} catch (const UsageError& error) {
  throw UsageError(fmt::format("the tokenizer {} cannot be used: {}", path, error.what()));
}

}  // namespace trireme::text
