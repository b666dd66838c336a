#include "trireme/data/tokenize.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/mix64.h"
#include "trireme/data/ordered_workers.h"
#include "trireme/data/tokenize_note.h"

namespace trireme::data {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;

/// What a thread makes of a block.
struct EncodedBlock {
  std::vector<int32_t> ids;
  struct End {
    size_t ids;
    int64_t text_bytes;
  };
  std::vector<End> ends;  ///< totals at the end of each document
  int64_t file_bytes = 0, text_bytes = 0, empty_documents = 0;
  uint64_t hash = 0;
};

EncodedBlock encode(const TextSource& source, const TextBlock& block, const text::Tokenizer& tokenizer,
                    const std::vector<int32_t>& separator) {
  EncodedBlock out{.file_bytes = block.bytes};
  out.hash = source.read(block, [&](const TextPiece& piece) {
    if (piece.text.empty() && piece.begins_document && piece.ends_document) {
      ++out.empty_documents;
      return;
    }
    const std::vector<int32_t> ids = tokenizer.encode(piece.text);
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    out.text_bytes += static_cast<int64_t>(piece.text.size());
    if (!piece.ends_document) return;
    out.ids.insert(out.ids.end(), separator.begin(), separator.end());
    out.ends.push_back({out.ids.size(), out.text_bytes});
  });
  return out;
}

uint64_t job_of(const TokenizeOptions& options, const TextFiles& files, const text::Tokenizer& tokenizer) {
  uint64_t job = base::mix_key(files.fingerprint(), tokenizer.fingerprint());
  for (const uint64_t part : {static_cast<uint64_t>(tokenizer.vocab_size()), base::hash_text(options.text_field),
                              uint64_t{options.append_eos}, static_cast<uint64_t>(options.block_bytes),
                              static_cast<uint64_t>(options.max_documents.value_or(0))})
    job = base::mix_key(job, part);
  return job;
}

std::optional<int64_t> unknown_id(const text::Tokenizer& tokenizer) {
  for (const char* name : {"<unk>", "[UNK]", "<UNK>"})
    if (const auto id = tokenizer.token_id(name)) return *id;
  return std::nullopt;
}

class Job {
 public:
  Job(const TokenizeOptions& options, const text::Tokenizer& tokenizer)
      : options_(options),
        tokenizer_(tokenizer),
        source_(TextFiles::list(options.sources), options.text_field, tokenizer, options.block_bytes),
        note_path_(options.output.string() + ".part") {
    note_.job = job_of(options, source_.files(), tokenizer);
    find_note();
    bytes_before_ = note_.text_bytes;
  }

  TokenizeResult run() {
    TokenSetWriter writer(options_.output, tokenizer_.vocab_size(), note_.set, readable_as_the_texts());
    try {
      for (int64_t i = 0; i < note_.blocks; ++i) source_.next_block();
      encode_rest(writer);
      return finish(writer);
    } catch (const base::FileError&) {
      throw;  // perhaps a full disk: the same command can continue later
    } catch (...) {
      writer.discard();
      ::unlink(note_path_.c_str());
      throw;
    }
  }

 private:
  unsigned readable_as_the_texts() const {
    std::vector<fs::path> texts;
    for (int64_t i = 0; i < source_.files().size(); ++i) texts.push_back(source_.files().path(i));
    return base::readable_as(texts);
  }

  // Refuses to overwrite a set, and takes over the note of the same job.
  void find_note() {
    if (TokenSet::exists(options_.output) && !options_.overwrite)
      throw UsageError(fmt::format("{}.idx already exists; name another --output, or replace it with --overwrite",
                                   options_.output.string()));
    if (!fs::exists(note_path_)) return;
    if (!fs::exists(options_.output.string() + ".bin.part")) return require_a_note();
    const uint64_t job = note_.job;
    try {
      note_ = parse_tokenize_note(base::read_side_file(note_path_), note_path_.string());
    } catch (const UsageError&) {
      if (!options_.overwrite) throw;
    }
    if (note_.job == job) {
      if (options_.resumed) options_.resumed(note_.file_bytes, source_.files().total_bytes());
      return;
    }
    if (!options_.overwrite)
      throw UsageError(
          fmt::format("{} belongs to an unfinished set of other files, another tokenizer or other settings: use those, "
                      "or start again with --overwrite",
                      note_path_.string()));
    note_ = {.job = job};
  }

  // A note without its set is left over, and anything else of that name is somebody's.
  void require_a_note() const {
    try {
      parse_tokenize_note(base::read_side_file(note_path_), note_path_.string());
    } catch (const UsageError&) {
      throw UsageError(
          fmt::format("{} is there and belongs to no tokenized data set; name another output", note_path_.string()));
    }
  }

  void encode_rest(TokenSetWriter& writer) {
    const std::vector<int32_t> separator =
        options_.append_eos ? tokenizer_.document_separator() : std::vector<int32_t>();
    OrderedWorkers<TextBlock, EncodedBlock> workers(
        options_.num_threads, [this] { return source_.next_block(); },
        [&](const TextBlock& block) { return encode(source_, block, tokenizer_, separator); });
    auto next_sync = Clock::now() + options_.sync_every;
    while (!is_full(writer)) {
      const auto block = workers.get();
      if (!block) break;
      take(*block, writer);
      if (options_.progress)
        options_.progress(static_cast<double>(note_.file_bytes) / static_cast<double>(source_.files().total_bytes()));
      if (Clock::now() < next_sync) continue;
      note_.set = writer.sync();
      base::write_file_atomic(note_path_, to_json(note_));
      next_sync = Clock::now() + options_.sync_every;
    }
  }

  bool is_full(const TokenSetWriter& writer) const {
    return options_.max_documents && writer.num_documents() >= *options_.max_documents;
  }

  void take(const EncodedBlock& block, TokenSetWriter& writer) {
    const std::span<const int32_t> ids(block.ids);
    EncodedBlock::End at{};
    for (const EncodedBlock::End& end : block.ends) {
      if (is_full(writer)) break;
      writer.append(ids.subspan(at.ids, end.ids - at.ids));
      writer.end_document();
      at = end;
    }
    if (!is_full(writer)) {
      writer.append(ids.subspan(at.ids));
      at.text_bytes = block.text_bytes;
    }
    ++note_.blocks;
    note_.file_bytes += block.file_bytes;
    note_.text_bytes += at.text_bytes;
    note_.empty_documents += block.empty_documents;
    note_.source_hash = base::mix_key(note_.source_hash, block.hash);
  }

  TokenizeResult finish(TokenSetWriter& writer) {
    if (writer.num_documents() == 0)
      throw UsageError(fmt::format("{} holds no text: every document is empty", options_.sources.front()));
    if (writer.num_tokens() == 0)
      throw UsageError(
          fmt::format("{} holds no tokens: {} makes none of its text", options_.sources.front(), tokenizer_.name()));
    TokenizeResult result{.file_bytes = note_.file_bytes,
                          .encoded_bytes = note_.text_bytes - bytes_before_,
                          .empty_documents = note_.empty_documents,
                          .left_out = source_.files().left_out_text()};
    result.about = {.tokenizer = tokenizer_.name(),
                    .tokenizer_fingerprint = tokenizer_.fingerprint(),
                    .unknown_id = unknown_id(tokenizer_),
                    .source_fingerprint = note_.source_hash,
                    .source_bytes = note_.text_bytes};
    for (const auto& root : source_.files().roots())
      result.about.sources.push_back({root.path, root.files, root.bytes});
    result.about = writer.commit(result.about);
    ::unlink(note_path_.c_str());
    return result;
  }

  const TokenizeOptions& options_;
  const text::Tokenizer& tokenizer_;
  TextSource source_;
  fs::path note_path_;
  TokenizeNote note_;
  int64_t bytes_before_ = 0;
};

}  // namespace

std::string lacks_separator(const text::Tokenizer& tokenizer) {
  if (!tokenizer.document_separator().empty()) return "";
  return fmt::format("{} has no end-of-text token, so that nothing stands between documents", tokenizer.name());
}

TokenizeResult tokenize(const TokenizeOptions& options, const text::Tokenizer& tokenizer) {
  return Job(options, tokenizer).run();
}

}  // namespace trireme::data
