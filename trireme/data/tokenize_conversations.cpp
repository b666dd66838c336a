#include "trireme/data/tokenize_conversations.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/mix64.h"
#include "trireme/base/text.h"
#include "trireme/data/ordered_workers.h"

namespace trireme::data {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kBatchBytes = int64_t{256} << 10;

std::string_view text_of(const base::MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

/// A file and its reader; batches keep it mapped.
struct OpenFile {
  explicit OpenFile(const fs::path& path) : mapped(path), reader(text_of(mapped), path.string()) {}
  base::MappedFile mapped;
  RecordReader reader;
};

struct RecordBatch {
  std::shared_ptr<OpenFile> file;
  std::vector<std::pair<ConversationRecord, std::string>> records;  ///< with their places
  double done = 0;
};

struct EncodedBatch {
  std::vector<text::ChatTokens> conversations;
  ConversationCounts counts;
  double done = 0;
};

/// Cuts files into batches of records.
class BatchReader {
 public:
  BatchReader(std::span<const fs::path> files, std::optional<int64_t> most, ConversationCounts& counts)
      : files_(files), counts_(counts), left_(most.value_or(std::numeric_limits<int64_t>::max())) {
    for (const fs::path& file : files) total_bytes_ += static_cast<int64_t>(fs::file_size(file));
  }

  std::optional<RecordBatch> next() {
    if (left_ == 0) return std::nullopt;
    for (; next_file_ < files_.size() || file_; file_ = nullptr) {
      if (!file_) open();
      RecordBatch batch{.file = file_};
      const int64_t begin = file_->reader.position();
      for (; left_ > 0 && file_->reader.position() - begin < kBatchBytes; --left_) {
        const auto record = file_->reader.next();
        if (!record) break;
        batch.records.emplace_back(*record, file_->reader.place(*record));
      }
      batch.done = static_cast<double>(closed_bytes_ + file_->reader.position()) /
                   static_cast<double>(std::max<int64_t>(1, total_bytes_));
      if (!batch.records.empty()) return batch;
      closed_bytes_ += file_->mapped.size_bytes();
    }
    return std::nullopt;
  }

 private:
  void open() {
    file_ = std::make_shared<OpenFile>(files_[next_file_++]);
    counts_.bytes += file_->mapped.size_bytes();
    counts_.source_hash = base::mix_key(counts_.source_hash, base::checksum(file_->mapped.bytes()));
  }

  std::span<const fs::path> files_;
  ConversationCounts& counts_;
  int64_t left_;  ///< records to read
  std::shared_ptr<OpenFile> file_;
  size_t next_file_ = 0;
  int64_t total_bytes_ = 0, closed_bytes_ = 0;
};

EncodedBatch encode(const RecordBatch& batch, const text::ChatFamily& family, const text::ChatEncoder& encoder,
                    const ConversationOptions& options) {
  EncodedBatch out{.done = batch.done};
  for (const auto& [record, place] : batch.records) {
    const Conversation conversation = parse_conversation(record.text, place, options.format, options.columns);
    try {
      text::ChatTokens tokens = render_conversation(conversation, family, encoder, options, out.counts);
      if (!tokens.ids.empty()) out.conversations.push_back(std::move(tokens));
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{}: {}", place, error.what()));
    }
  }
  return out;
}

void add(ConversationCounts& sum, const ConversationCounts& part) {
  sum.conversations += part.conversations;
  sum.cut += part.cut;
  sum.dropped += part.dropped;
  sum.without_reply += part.without_reply;
  sum.tokens += part.tokens;
  sum.learned += part.learned;
}

// If the mask is the same for every token, something before is wrong.
void check_mask(const ConversationCounts& counts, const fs::path& file, const ConversationOptions& options) {
  if (counts.conversations == 0) throw UsageError(fmt::format("{} holds no conversation", file.string()));
  if (counts.learned == 0)
    throw UsageError(
        fmt::format("nothing would be learned from {}: of {}, {} are without a reply by the assistant{}{}; are its "
                    "speakers named as data.format has them, and is train.max_seq_length long enough?",
                    file.string(), base::plural(counts.conversations, "conversation"), counts.without_reply,
                    options.max_tokens > 0 ? fmt::format(" in their first {} tokens", options.max_tokens) : "",
                    counts.dropped > 0 ? fmt::format(" and {} longer than that", counts.dropped) : ""));
  if (counts.learned == counts.tokens && options.learn != text::Learn::all)
    throw UsageError(
        fmt::format("every token of {} would be learned, questions and answers alike: a chat template tells them "
                    "apart; name one with --data.chat_template, or give the text as plain text",
                    file.string()));
}

}  // namespace

std::string tally_text(const ConversationTally& tally, int64_t tokens, int64_t learned) {
  std::string out = fmt::format("{}, {:.0f} % of {} tokens learned", base::plural(tally.conversations, "conversation"),
                                100 * static_cast<double>(learned) / static_cast<double>(std::max<int64_t>(1, tokens)),
                                base::human_quantity(static_cast<double>(tokens)));
  std::vector<std::string> others;
  const std::string limit = base::human_count(tally.max_tokens);
  if (tally.cut > 0) others.push_back(fmt::format("{} cut at {} tokens", base::human_count(tally.cut), limit));
  if (tally.dropped > 0)
    others.push_back(fmt::format("{} left out because longer than {} tokens", base::human_count(tally.dropped), limit));
  if (tally.without_reply > 0)
    others.push_back(fmt::format("{} left out because nothing of {} is learned", base::human_count(tally.without_reply),
                                 tally.without_reply == 1 ? "it" : "them"));
  return others.empty() ? out : out + "; " + base::join(others, ", ");
}

text::ChatTokens render_conversation(const Conversation& conversation, const text::ChatFamily& family,
                                     const text::ChatEncoder& encoder, const ConversationOptions& options,
                                     ConversationCounts& counts) {
  ++counts.conversations;
  text::ChatTokens tokens = encoder.encode(
      text::render_chat(family, conversation.messages, {.learn = options.learn, .thinks = conversation.thinks}));
  const auto limit = static_cast<size_t>(options.max_tokens);
  const bool is_long = limit > 0 && tokens.ids.size() > limit;
  if (is_long && options.drop_long) {
    ++counts.dropped;
    return {};
  }
  if (is_long) {
    tokens.ids.resize(limit);
    tokens.mask.resize(limit);
  }
  const int64_t learned = std::count(tokens.mask.begin(), tokens.mask.end(), uint8_t{1});
  if (learned == 0) {
    ++counts.without_reply;
    return {};
  }
  counts.cut += is_long ? 1 : 0;
  counts.tokens += static_cast<int64_t>(tokens.ids.size());
  counts.learned += learned;
  return tokens;
}

ConversationCounts tokenize_conversations(std::span<const fs::path> files, const text::ChatFamily& family,
                                          const text::Tokenizer& tokenizer, TokenSetWriter& writer,
                                          const ConversationOptions& options) {
  check_invariant(!files.empty(), "there are files of conversations");
  const text::ChatEncoder encoder(tokenizer, family);
  encoder.require_stop();
  ConversationCounts counts;
  BatchReader reader(files, options.max_documents, counts);
  OrderedWorkers<RecordBatch, EncodedBatch> workers(
      std::max(1, options.num_threads), [&] { return reader.next(); },
      [&](const RecordBatch& batch) { return encode(batch, family, encoder, options); });
  ConversationCounts sum;
  while (const auto batch = workers.get()) {
    for (const text::ChatTokens& tokens : batch->conversations) writer.append_document(tokens.ids, tokens.mask);
    add(sum, batch->counts);
    if (options.progress) options.progress(batch->done);
  }
  sum.bytes = counts.bytes;
  sum.source_hash = counts.source_hash;
  sum.max_tokens = options.max_tokens;
  check_mask(sum, files.front(), options);
  return sum;
}

ConversationSet make_conversation_set(const fs::path& prefix, std::span<const fs::path> files,
                                      const text::ChatFamily& family, const text::Tokenizer& tokenizer,
                                      const ConversationOptions& options) {
  TokenSetWriter writer(prefix, tokenizer.vocab_size(), true, base::readable_as(files));
  ConversationSet set;
  set.counts = tokenize_conversations(files, family, tokenizer, writer, options);
  set.about = {.tokenizer = tokenizer.name(),
               .tokenizer_fingerprint = tokenizer.fingerprint(),
               .source_fingerprint = set.counts.source_hash,
               .source_bytes = set.counts.bytes,
               .chat_template = family.name,
               .tally = set.counts};
  for (const fs::path& file : files)
    set.about.sources.push_back({file.string(), 1, static_cast<int64_t>(fs::file_size(file))});
  set.about = writer.commit(set.about);
  return set;
}

}  // namespace trireme::data
