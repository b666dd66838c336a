#include "trireme/data/training_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/data/packed_dataset.h"
#include "trireme/data/source_cache.h"
#include "trireme/data/window_dataset.h"

namespace trireme::data {
namespace fs = std::filesystem;
namespace {

constexpr const char* kValSetting = "data.val_data_path";

SourceOptions source_options(const TrainingDataOptions& options, const std::string& setting) {
  return {.setting = setting,
          .text_field = options.text_field,
          .append_eos = options.append_eos,
          .conversations = options.conversations,
          .cache_dir = options.cache_dir,
          .vocab_size = options.vocab_size};
}

void check_options(const TrainingDataOptions& options) {
  check_invariant(options.sequence >= 1, "a sample has at least one token");
  check_invariant(!options.sources.empty(), "there is something to learn from");
  // The negation also catches a fraction that is not a number.
  if (options.val_data_path.empty() && !(options.val_split_fraction >= 0 && options.val_split_fraction < 1))
    throw UsageError(
        fmt::format("data.val_split_fraction {} is not in [0, 1): it is the share of the text that is held out for "
                    "validation; 0.1 is usual, 0 means no validation",
                    options.val_split_fraction));
}

bool splits(const TrainingDataOptions& options) {
  return options.val_data_path.empty() && options.val_split_fraction > 0;
}

int64_t num_held_out(int64_t num_tokens, const TrainingDataOptions& options) {
  if (!splits(options)) return 0;
  return static_cast<int64_t>(std::ceil(options.val_split_fraction * static_cast<double>(num_tokens)));
}

// The fewest tokens of a sample: a window and its last target, or a document of two tokens.
int64_t least_tokens(const TrainingDataOptions& options) {
  return options.packing == Packing::wrapped ? options.sequence + 1 : 2;
}

// `num_tokens` is exact, or the most that there can be.
struct Length {
  int64_t num_tokens = 0;
  bool is_exact = true;
};

// Without reading text: bytes are the most tokens that it can have.
Length length_of(const fs::path& path, const SourceOptions& options) {
  return {.num_tokens = most_tokens(path, options), .is_exact = TokenSet::is_named_by(path)};
}

void require_one_sample(const Length& length, std::string_view whose, const TrainingDataOptions& options) {
  if (length.num_tokens >= least_tokens(options)) return;
  const std::string there_are =
      fmt::format("{}: {}{} {} fewer than one sample, which takes", whose, length.is_exact ? "" : "at most ",
                  base::plural(length.num_tokens, "token"), length.num_tokens == 1 ? "is" : "are");
  if (options.packing != Packing::wrapped)
    throw UsageError(fmt::format("{} a document of 2; give more text", there_are));
  throw UsageError(
      fmt::format("{} {} (train.max_seq_length {} and one more as the last target); give more text or a smaller "
                  "train.max_seq_length",
                  there_are, options.sequence + 1, options.sequence));
}

// Checks the lengths of a source's two parts. Of documents, whole ones are held out, as long as they are.
void check_length(const fs::path& path, Length length, const TrainingDataOptions& options) {
  const bool is_cut = options.packing == Packing::wrapped;
  const int64_t held_out = is_cut ? num_held_out(length.num_tokens, options) : 0;
  const std::string name = fmt::format("{} {}", options.setting, path.string());
  length.num_tokens -= held_out;
  require_one_sample(length, held_out == 0 ? name : name + " less its part for validation", options);
  if (held_out == 0) return;
  length.num_tokens = held_out;
  require_one_sample(length,
                     fmt::format("the part of {} that data.val_split_fraction {} holds out", path.string(),
                                 options.val_split_fraction),
                     options);
}

// First token of the part that is held out. Packed documents are not cut.
int64_t split_at(const TokenSet& set, const fs::path& path, const TrainingDataOptions& options) {
  const int64_t end = set.num_tokens(), wanted = end - num_held_out(end, options);
  if (wanted == end || options.packing == Packing::wrapped) return wanted;
  int64_t document = set.num_documents() - 1;
  while (document > 0 && set.document_start(document) > wanted) --document;
  if (document < 1)
    throw UsageError(
        fmt::format("{} {} has no documents that could be held out for validation: the first of {} is more than {:g} "
                    "of its tokens; name others with data.val_data_path, or take --data.packing wrapped",
                    options.setting, path.string(), set.num_documents(), 1 - options.val_split_fraction));
  return set.document_start(document);
}

// A source's two parts.
struct Division {
  std::vector<TokenRange::Stretch> train, val;
  int64_t val_tokens = 0, val_documents = 0;
  bool is_sample = false;
};

std::optional<Division> sampled(const TokenSet& set, const TrainingDataOptions& options) {
  const int64_t wanted = num_held_out(set.num_tokens(), options);
  const bool asked = options.split == Split::sample;
  if (wanted == 0 || options.split == Split::last || (!asked && set.num_documents() < kManyDocuments))
    return std::nullopt;
  const std::vector<int64_t> drawn = sample_documents(set, wanted);
  Division d{.train = stretches_without(set, drawn), .val = stretches_of(set, drawn), .is_sample = true};
  for (const auto& stretch : d.val) d.val_tokens += stretch.size;
  d.val_documents = std::ssize(drawn);
  if (d.val_tokens >= least_tokens(options) && d.val_tokens >= wanted / 2) return d;
  if (!asked) return std::nullopt;  // a few documents are nearly all of the text
  throw UsageError(
      fmt::format("a sample of the {} of {} holds {} of the {} that data.val_split_fraction {:g} asks for: take "
                  "--data.val_split last, or name others with data.val_data_path",
                  base::plural(set.num_documents(), "document"), set.path().string(),
                  base::plural(d.val_tokens, "token"), base::human_count(wanted), options.val_split_fraction));
}

Division divide(const std::shared_ptr<const TokenSet>& set, const fs::path& path, const TrainingDataOptions& options) {
  if (auto sample = sampled(*set, options)) return *std::move(sample);
  const int64_t end = set->num_tokens(), split = split_at(*set, path, options);
  Division d{.train = {{0, split}}, .val_tokens = end - split};
  if (split == end) return d;
  d.val = {{split, end - split}};
  d.val_documents = set->num_documents() - TokenRange(set, 0, end, "").document_of(split);
  return d;
}

std::string held_out_text(const std::vector<Division>& parts, int64_t documents) {
  int64_t sampled_documents = 0, last_documents = 0, samples = 0, lasts = 0;
  for (const Division& d : parts) {
    if (d.val.empty()) continue;
    (d.is_sample ? samples : lasts)++;
    (d.is_sample ? sampled_documents : last_documents) += d.val_documents;
  }
  const std::string last =
      documents == std::ssize(parts)
          ? "the end of the text"
          : fmt::format("the last {} of {}", base::human_count(last_documents), base::plural(documents, "document"));
  if (samples == 0) return lasts == 0 ? "" : lasts == 1 ? last : last + ", of each source";
  const std::string sample =
      fmt::format("a sample of {} of {}", base::human_count(sampled_documents), base::plural(documents, "document"));
  return lasts == 0 ? sample : fmt::format("{}, and the end of {}", sample, base::plural(lasts, "source"));
}

struct Part {
  std::shared_ptr<const Dataset> dataset;
  int64_t places = 0;  // that hold tokens
  int64_t long_documents = 0;  // that were cut, or dropped
};

// Conversations of a set that somebody tokenized may be longer than a row. Those of the cache are not.
LongDocuments long_documents(const TokenSet& set, const TrainingDataOptions& options) {
  if (!set.about() || !set.about()->tally) return LongDocuments::parts;
  return options.conversations.options.drop_long ? LongDocuments::dropped : LongDocuments::cut;
}

/// @param whose  setting and path, for errors
Part cut(TokenRange tokens, const std::string& whose, const TrainingDataOptions& options, bool whole,
         LongDocuments long_documents) {
  if (options.packing == Packing::wrapped) {
    auto windows = std::make_shared<WindowDataset>(
        std::move(tokens),
        WindowOptions{.sequence = options.sequence, .seed = options.seed, .whole = whole, .apart = options.apart});
    return {windows, windows->num_samples() * options.sequence};
  }
  auto packed = std::make_shared<PackedDataset>(std::move(tokens),
                                                PackingOptions{.sequence = options.sequence,
                                                               .share_rows = options.packing == Packing::best_fit,
                                                               .long_documents = long_documents});
  if (packed->num_samples() == 0)
    throw UsageError(fmt::format(
        "{}: every conversation to learn from is longer than {} tokens, and data.long_conversations drop leaves it "
        "out; take --data.long_conversations cut, or a larger train.max_seq_length",
        whose, options.sequence + 1));
  return {packed, packed->num_places(), long_documents == LongDocuments::parts ? 0 : packed->num_long()};
}

std::string fact_of(const TokenSet& set, int64_t train_tokens) {
  const auto& about = set.about();
  const bool from_text = about && about->source_fingerprint != 0;
  const std::string text = fmt::format("{} of {} tokens (fingerprint {})", base::human_count(train_tokens),
                                       base::human_count(set.num_tokens()), base::checksum_text(set.fingerprint()));
  return from_text ? fmt::format("{} from {} bytes of text", text, base::human_count(about->source_bytes)) : text;
}

// If the mask excludes every token, the loss would be 0 forever. The sidecar's count may be of another mask.
void require_learned(const TokenSet& set, const std::vector<TokenRange::Stretch>& part, const std::string& whose) {
  const auto learns = [&](const TokenRange::Stretch& s) {
    const auto mask = set.mask().subspan(static_cast<size_t>(s.first), static_cast<size_t>(s.size));
    return std::ranges::any_of(mask, [](std::byte b) { return b != std::byte{0}; });
  };
  if (!set.has_mask() || std::ranges::any_of(part, learns)) return;
  int64_t tokens = 0;
  for (const auto& stretch : part) tokens += stretch.size;
  throw UsageError(
      fmt::format("{}: nothing would be learned from it, because its mask excludes all of its {} tokens; "
                  "tokenize it again with another data.learn or data.chat_template",
                  whose, base::human_count(tokens)));
}

std::shared_ptr<const TokenSet> open_learned(const fs::path& path, const text::Tokenizer& tokenizer,
                                             const SourceOptions& options) {
  auto set = open_source(path, tokenizer, options);
  require_learned(*set, {{0, set->num_tokens()}}, fmt::format("{} {}", options.setting, path.string()));
  return set;
}

std::string conversations_of(const TokenSet& set, const fs::path& path, int64_t long_documents,
                             const TrainingDataOptions& options) {
  const TokenSetAbout& about = *set.about();
  std::string text = fmt::format("{} as {}: {}", path.string(), about.chat_template,
                                 tally_text(*about.tally, set.num_tokens(), set.supervised_tokens()));
  if (long_documents > 0)  // these numbers are of the whole set
    text += fmt::format("; in this run {} {} {} tokens", base::human_count(long_documents),
                        options.conversations.options.drop_long ? "left out because longer than" : "cut at",
                        base::human_count(options.sequence + 1));
  const auto files = TokenSet::is_named_by(path) ? std::vector<fs::path>() : options.conversations.files(path);
  const std::string beside = files.empty() ? "" : read_beside(files.front(), options.conversations.options.format);
  return beside.empty() ? text : text + "; " + beside;
}

}  // namespace

void check_training_data(const TrainingDataOptions& options) {
  check_options(options);
  for (const DataSource& source : options.sources)
    check_length(source.path, length_of(source.path, source_options(options, options.setting)), options);
  if (options.val_data_path.empty()) return;
  require_one_sample(length_of(options.val_data_path, source_options(options, kValSetting)),
                     fmt::format("{} {}", kValSetting, options.val_data_path.string()), options);
}

TrainingData load_training_data(const TrainingDataOptions& options, const text::Tokenizer& tokenizer) {
  check_training_data(options);
  TrainingData data;
  std::vector<WeightedDataset> weighted;
  std::vector<std::shared_ptr<const Dataset>> held_out;
  std::vector<std::string> weights;
  std::vector<Division> parts;
  int64_t places = 0, samples = 0, long_of_sources = 0;
  const auto count = [&](const TokenSet& set) {
    data.num_documents += set.num_documents();
    if (set.about()) data.source_bytes += set.about()->source_bytes;
    data.of_unknown_tokenizer |= is_of_unknown_tokenizer(set);
  };
  const auto count_conversations = [&](const TokenSet& set, const fs::path& path, int64_t long_ones) {
    if (set.about() && set.about()->tally)
      data.conversations.push_back(conversations_of(set, path, long_ones, options));
  };
  for (const DataSource& source : options.sources) {
    const auto set = open_learned(source.path, tokenizer, source_options(options, options.setting));
    check_length(source.path, {set->num_tokens()}, options);
    Division division = divide(set, source.path, options);
    const int64_t train_tokens = set->num_tokens() - division.val_tokens;
    require_learned(*set, division.train,
                    fmt::format("{} {} less its part for validation", options.setting, source.path.string()));
    if (parts.empty()) {
      if (set->about()) data.chat_template = set->about()->chat_template;
      data.examples =
          std::make_shared<TokenRange>(set, division.val.empty() ? division.train : division.val, source.path.string());
    }
    const LongDocuments longer = options.keep_long ? LongDocuments::parts : long_documents(*set, options);
    const std::string whose = fmt::format("{} {}", options.setting, source.path.string());
    Part part = cut({set, division.train, source.path.string()}, whose, options, /*whole=*/false, longer);
    int64_t long_ones = part.long_documents;
    places += part.places;
    samples += part.dataset->num_samples();
    weighted.push_back({std::move(part.dataset), source.weight.value_or(1)});
    if (!division.val.empty()) {
      const Part held =
          cut({set, division.val, source.path.string()}, "the part for validation of " + whose, options, true, longer);
      held_out.push_back(held.dataset);
      long_ones += held.long_documents;
    }
    long_of_sources += long_ones;
    data.train_tokens += train_tokens;
    data.val_tokens += division.val_tokens;
    count(*set);
    count_conversations(*set, source.path, long_ones);
    data.identity.add(options.sources.size() == 1 ? "the data" : fmt::format("source {}", weighted.size()),
                      fact_of(*set, train_tokens));
    parts.push_back(std::move(division));
    if (source.weight) weights.push_back(fmt::format("{}", *source.weight));
  }
  data.held_out = held_out_text(parts, data.num_documents);
  if (!options.val_data_path.empty()) {
    const auto set = open_learned(options.val_data_path, tokenizer, source_options(options, kValSetting));
    const std::string whose = fmt::format("{} {}", kValSetting, options.val_data_path.string());
    require_one_sample({set->num_tokens()}, whose, options);
    const Part held = cut({set, 0, set->num_tokens(), options.val_data_path.string()}, whose, options, true,
                          long_documents(*set, options));
    held_out = {held.dataset};
    data.examples = std::make_shared<TokenRange>(set, 0, set->num_tokens(), options.val_data_path.string());
    data.val_tokens = set->num_tokens();
    data.held_out = options.val_data_path.string();
    data.held_out_hash = set->fingerprint();
    count(*set);
    count_conversations(*set, options.val_data_path, held.long_documents);
  }
  data.filled = static_cast<double>(places) / static_cast<double>(samples * options.sequence);
  if (weights.empty() && weighted.size() > 1) {
    std::vector<std::shared_ptr<const Dataset>> joined;
    for (WeightedDataset& source : weighted) joined.push_back(std::move(source.dataset));
    weighted = {{std::make_shared<JoinedDataset>(std::move(joined))}};
  }
  data.train = std::make_shared<SampleStream>(std::move(weighted), options.seed);
  if (!held_out.empty()) data.val = std::make_shared<JoinedDataset>(std::move(held_out));
  data.identity.add("the tokenizer",
                    fmt::format("{} (fingerprint {})", tokenizer.name(), base::checksum_text(tokenizer.fingerprint())));
  data.identity.add("data.packing", std::string(config::name_of(options.packing)));
  data.identity.add("train.max_seq_length", fmt::format("{}", options.sequence));
  data.identity.add("data.seed", fmt::format("{}", options.seed));
  if (std::ranges::any_of(parts, &Division::is_sample)) data.identity.add(kSplitFact, "sample");
  if (long_of_sources > 0) data.identity.add(kLongFact, options.conversations.options.drop_long ? "drop" : "cut");
  if (!weights.empty()) data.identity.add("the weights of data.mixture", base::join(weights, ", "));
  return data;
}

}  // namespace trireme::data
