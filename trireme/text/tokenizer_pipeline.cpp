#include "trireme/text/tokenizer_pipeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/mix64.h"
#include "trireme/text/utf8.h"

namespace trireme::text {
namespace {
constexpr uint64_t kEncodingVersion = 1;  // of this code: raise it when any text gets other ids
}

// Lends a call its buffers and cache, and takes them back.
class PipelineTokenizer::Lease {
 public:
  explicit Lease(const PipelineTokenizer& owner) : owner_(owner) {
    const std::lock_guard lock(owner_.mutex_);
    if (!owner_.idle_.empty()) {
      scratch_ = std::move(owner_.idle_.back());
      owner_.idle_.pop_back();
    }
  }
  Lease(const Lease&) = delete;
  ~Lease() {
    const std::lock_guard lock(owner_.mutex_);
    owner_.idle_.push_back(std::move(scratch_));
  }
  ModelScratch& scratch() {
    if (!scratch_) scratch_ = owner_.parts_.model->scratch();
    return *scratch_;
  }

 private:
  const PipelineTokenizer& owner_;
  std::unique_ptr<ModelScratch> scratch_;
};

PipelineTokenizer::PipelineTokenizer(TokenizerParts parts) : parts_(std::move(parts)) {
  vocab_size_ = parts_.model->vocab_size();
  for (const AddedToken& token : parts_.added.all()) vocab_size_ = std::max<int64_t>(vocab_size_, token.id + 1);
  if (parts_.separator.empty()) parts_.separator = choose_separator();
}

std::vector<int32_t> PipelineTokenizer::choose_separator() const {
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "<|end\xE2\x96\x81of\xE2\x96\x81sentence|>"})
    if (const auto id = token_id(name)) return {*id};
  if (parts_.eos) return {*parts_.eos};
  if (parts_.bos) return {*parts_.bos};
  return encode("\n");
}

std::vector<int32_t> PipelineTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (!parts_.takes_bytes && !is_utf8(text)) return encode(well_formed(text), options);
  if (options.tiktoken_bytes && !is_utf8(text)) return encode_tiktoken_bytes(text);
  Lease lease(*this);
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 8);
  if (options.add_special) ids = parts_.before;
  const auto take = [&](std::string_view section, const AddedToken* token) {
    if (token != nullptr) {
      ids.push_back(token->id);
      return;
    }
    const TextBefore before = section.data() == text.data() ? options.before : TextBefore::token;
    if (parts_.normalizer.is_identity()) {
      encode_section(section, before, options, lease.scratch(), ids);
    } else {
      encode_section(parts_.normalizer(section, before == TextBefore::text), before, options, lease.scratch(), ids);
    }
  };
  parts_.added.raw().split(text, options.parse_special, options.as_text, take);
  if (options.add_special) ids.insert(ids.end(), parts_.after.begin(), parts_.after.end());
  return ids;
}

std::vector<int32_t> PipelineTokenizer::encode_tiktoken_bytes(std::string_view text) const {
  Lease lease(*this);
  std::vector<int32_t> ids;
  size_t begin = 0, before = 0;  // of the last piece, and the ids before it
  const std::string_view valid = well_formed_prefix(text);
  parts_.pre_tokenizer.run(valid, TextBefore::nothing, [&](std::string_view piece) {
    begin = static_cast<size_t>(piece.data() - valid.data());
    before = ids.size();
    parts_.model->encode(piece, lease.scratch(), ids);
  });
  // White space before it may belong to it, once more text follows.
  const auto is_blank = [&](int32_t id) { return decode({&id, 1}).find_first_not_of(" \n\t") == std::string::npos; };
  if (before < ids.size() && is_blank(ids[before]))
    while (before > 0 && is_blank(ids[before - 1])) begin -= decode({&ids[--before], 1}).size();
  ids.resize(before);
  parts_.model->encode(text.substr(begin), lease.scratch(), ids);
  return ids;
}

void PipelineTokenizer::encode_section(std::string_view text, TextBefore before, const EncodeOptions& options,
                                       ModelScratch& scratch, std::vector<int32_t>& out) const {
  const PreTokenizer::Take take = [&](std::string_view piece) { parts_.model->encode(piece, scratch, out); };
  const auto take_section = [&](std::string_view section, const AddedToken* token) {
    if (token != nullptr) {
      out.push_back(token->id);
    } else {
      parts_.pre_tokenizer.run(section, section.data() == text.data() ? before : TextBefore::token, take);
    }
  };
  parts_.added.normalized().split(text, options.parse_special, options.as_text, take_section);
}

std::string_view PipelineTokenizer::token(int32_t id) const {
  if (id < 0 || id >= vocab_size_)
    throw UsageError(fmt::format(
        "token id {} is not of this tokenizer, whose ids are 0 to {}; does the model have another tokenizer?", id,
        vocab_size_ - 1));
  if (const AddedToken* added = parts_.added.find(id)) return added->text;
  return parts_.model->token(id);
}

std::string PipelineTokenizer::decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  std::vector<std::string_view> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    if (options.drawn && id >= vocab_size_) continue;
    const std::string_view text = token(id);
    if (text.empty() || ((options.skip_special || parts_.hides_special) && is_special(id))) continue;
    tokens.push_back(text);
  }
  return parts_.decoder(tokens);
}

std::string PipelineTokenizer::token_bytes(int32_t id, bool is_first) const {
  const bool is_hidden = id >= vocab_size_ || (parts_.hides_special && is_special(id));
  return is_hidden ? std::string() : parts_.decoder.one(token(id), is_first);
}

std::string PipelineTokenizer::name() const { return fmt::format("{} of {}", parts_.name, vocab_size_); }

uint64_t PipelineTokenizer::fingerprint() const {
  uint64_t value = base::mix_key(parts_.fingerprint, kEncodingVersion);
  for (const int32_t id : parts_.separator) value = base::mix_key(value, static_cast<uint64_t>(id));
  return value;
}

std::optional<int32_t> PipelineTokenizer::token_id(std::string_view token) const {
  if (const AddedToken* added = parts_.added.find(token)) return added->id;
  return parts_.model->id_of(token);
}

std::string PipelineTokenizer::token_content(int32_t id) const {
  const AddedToken* added = parts_.added.find(id);
  return added != nullptr ? added->content : std::string(parts_.model->token(id));
}

bool PipelineTokenizer::is_special(int32_t id) const {
  const AddedToken* added = parts_.added.find(id);
  return added != nullptr && added->special;
}

}  // namespace trireme::text
