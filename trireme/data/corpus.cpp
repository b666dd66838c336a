#include "trireme/data/corpus.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/data/permutation.h"
#include "trireme/data/sources.h"
#include "trireme/data/token_set.h"

namespace trireme::data {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;
constexpr const char* kTrainSetting = "data.train_data_path";
constexpr const char* kValSetting = "data.val_data_path";

int64_t total_bytes(const std::vector<SourceFile>& files) {
  return std::accumulate(files.begin(), files.end(), int64_t{0},
                         [](int64_t sum, const auto& f) { return sum + f.bytes; });
}

int64_t num_val_tokens(int64_t num_tokens, const CorpusOptions& options) {
  if (!options.val_data_path.empty()) return 0;
  return static_cast<int64_t>(std::ceil(options.val_split_fraction * static_cast<double>(num_tokens)));
}

void check_options(const CorpusOptions& options) {
  check_invariant(options.sequence >= 1, "a sample has at least one token");
  // The negation also catches a fraction that is not a number.
  if (options.val_data_path.empty() && !(options.val_split_fraction >= 0 && options.val_split_fraction < 1)) {
    throw UsageError(
        fmt::format("data.val_split_fraction {} is not in [0, 1): it is the share of the text that is "
                    "held out for validation; 0.1 is usual, 0 means no validation",
                    options.val_split_fraction));
  }
}

void require_one_sample(int64_t num_tokens, std::string_view whose, const CorpusOptions& options) {
  if (num_tokens > options.sequence) return;
  throw UsageError(
      fmt::format("{}: {} tokens are fewer than one sample, which takes {} (train.max_seq_length {} and "
                  "one more as the last target); give more text or a smaller train.max_seq_length",
                  whose, num_tokens, options.sequence + 1, options.sequence));
}

// The rule about lengths, for exact numbers of tokens or upper bounds of them.
void check_lengths(int64_t train_file_tokens, int64_t val_file_tokens, const CorpusOptions& options) {
  const int64_t held_out = num_val_tokens(train_file_tokens, options);
  const std::string train = fmt::format("{} {}", kTrainSetting, options.train_data_path.string());
  require_one_sample(train_file_tokens - held_out, held_out == 0 ? train : train + " less its part for validation",
                     options);
  if (!options.val_data_path.empty()) {
    require_one_sample(val_file_tokens, fmt::format("{} {}", kValSetting, options.val_data_path.string()), options);
  } else if (held_out > 0) {
    require_one_sample(held_out,
                       fmt::format("the part of {} that data.val_split_fraction {} holds out",
                                   options.train_data_path.string(), options.val_split_fraction),
                       options);
  }
}

int64_t most_tokens(const fs::path& path, const char* setting) {
  const auto files = list_sources(path, setting);
  return total_bytes(files) + static_cast<int64_t>(files.size()) - 1;
}

void tokenize(const fs::path& path, const std::vector<SourceFile>& files, uint64_t source_fingerprint,
              const Tokenizer& tokenizer, const fs::path& out) {
  TokenSetWriter writer(out, tokenizer.vocab_size());
  const auto separator = tokenizer.document_separator();
  for (size_t i = 0; i < files.size(); ++i) {
    read_source(files[i], tokenizer.splits_anywhere() ? kPieceBytes : 0,
                [&](std::string_view piece) { writer.append(tokenizer.encode(piece)); });
    if (i + 1 < files.size()) writer.append(separator);
    writer.end_document();
  }
  if (hash_sources(files) != source_fingerprint) {
    throw UsageError(fmt::format("{} changed while it was tokenized; start again when nothing writes to it",
                                 files.front().path.parent_path().string()));
  }
  const int64_t bytes = total_bytes(files);
  writer.commit({.tokenizer = tokenizer.name(),
                 .tokenizer_fingerprint = tokenizer.fingerprint(),
                 .sources = {{path.string(), static_cast<int64_t>(files.size()), bytes}},
                 .source_fingerprint = source_fingerprint,
                 .source_bytes = bytes});
}

// A set in the cache that fits; nothing when there is none, or a damaged one.
std::optional<TokenSet> cached_set(const fs::path& prefix, uint64_t source_fingerprint, const Tokenizer& tokenizer) {
  if (!TokenSet::exists(prefix)) return std::nullopt;
  try {
    TokenSet set = TokenSet::open(prefix);
    const auto& about = set.about();
    if (about && about->source_fingerprint == source_fingerprint &&
        about->tokenizer_fingerprint == tokenizer.fingerprint() && about->vocab_size == tokenizer.vocab_size())
      return set;
  } catch (const UsageError&) {
  }
  return std::nullopt;
}

TokenSet open_or_tokenize(const fs::path& path, const std::vector<SourceFile>& files, const Tokenizer& tokenizer,
                          const fs::path& cache_dir) {
  const uint64_t source_fingerprint = hash_sources(files);
  const uint64_t key = mix_key(source_fingerprint, tokenizer.fingerprint());
  const fs::path name = path.has_filename() ? path.stem() : path.parent_path().filename();
  const fs::path cached = cache_dir / fmt::format("{}-{}", name.string(), base::checksum_text(key));
  if (auto set = cached_set(cached, source_fingerprint, tokenizer)) return *std::move(set);
  tokenize(path, files, source_fingerprint, tokenizer, cached);
  auto set = cached_set(cached, source_fingerprint, tokenizer);
  if (!set) {
    throw UsageError(
        fmt::format("the tokenized corpus {} cannot be read back; is its folder on a file system that "
                    "allows mapping files?",
                    cached.string()));
  }
  return *std::move(set);
}

}  // namespace

void check_corpus(const CorpusOptions& options) {
  check_options(options);
  const int64_t train_tokens = most_tokens(options.train_data_path, kTrainSetting);
  const int64_t val_tokens = options.val_data_path.empty() ? 0 : most_tokens(options.val_data_path, kValSetting);
  check_lengths(train_tokens, val_tokens, options);
}

Corpus load_corpus(const CorpusOptions& options, const Tokenizer& tokenizer) {
  check_corpus(options);
  const auto train_files = list_sources(options.train_data_path, kTrainSetting);
  const TokenSet train = open_or_tokenize(options.train_data_path, train_files, tokenizer, options.cache_dir);
  Corpus corpus;
  corpus.num_documents = train.num_documents();
  corpus.source_bytes = total_bytes(train_files);
  corpus.sequence = options.sequence;
  uint64_t fingerprint = mix_key(train.about()->source_fingerprint, tokenizer.fingerprint());
  const int64_t held_out = num_val_tokens(train.num_tokens(), options);
  corpus.train = train.view().sub(0, train.num_tokens() - held_out);
  if (options.val_data_path.empty()) {
    corpus.val = train.view().sub(train.num_tokens() - held_out, held_out);
  } else {
    const auto val_files = list_sources(options.val_data_path, kValSetting);
    const TokenSet val = open_or_tokenize(options.val_data_path, val_files, tokenizer, options.cache_dir);
    corpus.val = val.view();
    corpus.num_documents += val.num_documents();
    corpus.source_bytes += total_bytes(val_files);
    fingerprint = mix_key(fingerprint, val.about()->source_fingerprint);
  }
  check_lengths(train.num_tokens(), corpus.val.size(), options);
  fingerprint = mix_key(fingerprint, static_cast<uint64_t>(corpus.train.size()));
  corpus.fingerprint = mix_key(fingerprint, static_cast<uint64_t>(options.sequence));
  return corpus;
}

void check_same_data(const Corpus& corpus, uint64_t saved_fingerprint) {
  if (corpus.fingerprint == saved_fingerprint) return;
  throw UsageError(fmt::format(
      "the run to resume learned from other data (fingerprint {}, now {}): its texts, tokenizer, train.max_seq_length "
      "or data.val_split_fraction were different; give it the same, or start a new run from its weights",
      base::checksum_text(saved_fingerprint), base::checksum_text(corpus.fingerprint)));
}

}  // namespace trireme::data
