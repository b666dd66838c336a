#include "trireme/train/score.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/named_file.h"
#include "trireme/comm/communicator.h"
#include "trireme/text/around_text.h"
#include "trireme/text/utf8.h"
#include "trireme/train/jsonl_records.h"
#include "trireme/train/judge.h"

namespace trireme::train {
namespace {

using nlohmann::json;

ScoredText ids_in(const json& record, int64_t vocab_size) {
  ScoredText t;
  const json& ids = record["tokens"];
  if (!ids.is_array()) throw UsageError("\"tokens\" is no list of ids");
  for (const json& id : ids) {
    if (!base::is_whole_number(id) || id < 0 || id >= vocab_size)
      throw UsageError(fmt::format("\"tokens\" holds {}, and ids are numbers from 0 to {}", id.dump(), vocab_size - 1));
    t.tokens.push_back(id.get<int64_t>());
  }
  if (const auto first = record.find("first"); first != record.end()) {
    if (!base::is_whole_number(*first) || *first < 1 || *first >= std::ssize(t.tokens))
      throw UsageError(fmt::format("\"first\" is {}; it is the number of a token behind another", first->dump()));
    t.first = first->get<int64_t>();
  }
  return t;
}

/// @param behind  how many tokens the tokenizer puts behind a text
ScoredText parse(const json& record, const text::Tokenizer* known, int64_t vocab_size, size_t behind) {
  if (record.contains("tokens")) return ids_in(record, vocab_size);
  if (known == nullptr) throw UsageError("the file has changed: it had \"tokens\" in all lines");
  const text::Tokenizer& tokenizer = *known;
  if (!record.contains("prompt")) return {.tokens = encode_text(tokenizer, text_in(record, "text"), true)};
  ScoredText t{.tokens = encode_text(tokenizer, text_in(record, "prompt"), true)};
  // What the tokenizer puts behind a text does not stand between prompt and completion.
  t.tokens.resize(t.tokens.size() - behind);
  t.first = std::ssize(t.tokens);
  if (t.first == 0) throw UsageError("\"prompt\" has no token; give a whole \"text\"");
  const std::string completion = text_in(record, "completion");
  std::ranges::copy(tokenizer.encode(completion, {.before = text::TextBefore::text}), std::back_inserter(t.tokens));
  return t;
}

/// That of lm-evaluation-harness (prefix_token_id).
std::optional<int32_t> first_token(const text::Tokenizer& tokenizer) {
  return tokenizer.bos_id() ? tokenizer.bos_id() : tokenizer.eos_id();
}

/// Whether a text brings this token itself, in writing. Its ids do not tell: they may begin with it as the unknown one.
bool brings_first_token(const text::Tokenizer& tokenizer, std::string_view text) {
  const std::optional<int32_t> begins = first_token(tokenizer);
  const std::string content = begins ? tokenizer.token_content(*begins) : "";
  return !content.empty() && text.starts_with(content);
}

}  // namespace

std::vector<int64_t> encode_text(const text::Tokenizer& tokenizer, std::string_view text, bool add_special,
                                 bool parse_special) {
  std::vector<int64_t> ids;
  for (const int32_t id : tokenizer.encode(text, {.parse_special = parse_special, .add_special = add_special}))
    ids.push_back(id);
  return ids;
}

std::vector<int64_t> encode_context(const text::Tokenizer& tokenizer, std::string_view text) {
  return encode_text(tokenizer, text, /*add_special=*/!brings_first_token(tokenizer, text));
}

std::vector<int64_t> tokens_before_all(const text::Tokenizer& tokenizer) {
  if (const std::optional<int32_t> begins = first_token(tokenizer)) return {*begins};
  return encode_text(tokenizer, "\n", false);
}

ScoredText encode_pair(const text::Tokenizer& tokenizer, std::string_view context, std::string_view continuation) {
  ScoredText pair;
  if (context.empty()) {
    pair.tokens = tokens_before_all(tokenizer);
    pair.first = std::ssize(pair.tokens);
    const std::vector<int64_t> own = encode_text(tokenizer, continuation, false);
    const std::optional<int32_t> begins = first_token(tokenizer);
    const bool has_it = begins && !own.empty() && own.front() == *begins;  // by its id, as in lm-evaluation-harness
    std::copy(own.begin() + (has_it ? 1 : 0), own.end(), std::back_inserter(pair.tokens));
  } else {
    const std::string words = text::stripped(context, {.start = false});
    pair.tokens = encode_context(tokenizer, fmt::format("{}{}", context, continuation));
    pair.first = std::max<int64_t>(1, std::ssize(encode_context(tokenizer, words)));
  }
  if (pair.first < std::ssize(pair.tokens)) return pair;
  // Its log-probability would be 0, more than that of any other text.
  const std::string quoted = base::json_text(json(continuation));
  throw UsageError(fmt::format(
      "choice {} has no token of its own, because the tokenizer joins it to the end of its context; begin it "
      "with a space, or move the context's last word into each choice",
      quoted));
}

bool has_ids_alone(const std::filesystem::path& path) {
  bool alone = true;
  for_each_record(path, "evaluate.score", "text",
                  [&](const json& record, const std::string&) { alone = alone && record.contains("tokens"); });
  return alone;
}

std::vector<ScoredText> read_scored_texts(const std::filesystem::path& path, const text::Tokenizer* tokenizer,
                                          int64_t vocab_size) {
  std::vector<ScoredText> texts;
  const size_t behind = tokenizer == nullptr ? 0 : text::around_text(*tokenizer).behind.size();
  for_each_record(path, "evaluate.score", "text", [&](const json& record, const std::string&) {
    texts.push_back(parse(record, tokenizer, vocab_size, behind));
    if (std::ssize(texts.back().tokens) <= texts.back().first)
      throw UsageError("no token is left to score; the first has nothing before it");
  });
  return texts;
}

void check_score(const EvaluateSettings& settings, const text::Tokenizer* tokenizer, const model::ModelConfig& config) {
  const std::vector<ScoredText> texts = read_scored_texts(*settings.score, tokenizer, config.vocab_size);
  for (size_t i = 0; i < texts.size(); ++i)
    if (const int64_t most = config.longest_generation() + 1;  // the last token is not read
        std::ssize(texts[i].tokens) > most)
      throw UsageError(fmt::format("evaluate.score: text {} has {} tokens; up to {} are scored, as {}; cut it", i + 1,
                                   texts[i].tokens.size(), most, config.generation_positions()));
}

nlohmann::ordered_json score_texts(Inference& in, const EvaluateSettings& settings) {
  std::vector<ScoredText> texts = read_scored_texts(*settings.score, in.tokenizer.get(), in.config.vocab_size);
  if (settings.limit && *settings.limit < std::ssize(texts)) texts.resize(static_cast<size_t>(*settings.limit));
  std::vector<int64_t> begin = {0};  // of each text's numbers
  for (const ScoredText& text : texts) begin.push_back(begin.back() + std::ssize(text.tokens) - text.first);
  const at::Tensor all = at::zeros({begin.back()}, at::kDouble);
  Judge judge(in, "log-probabilities", texts.size());
  for (size_t i = static_cast<size_t>(in.replica); i < texts.size(); i += static_cast<size_t>(in.num_replicas))
    judge.add(i, texts[i].tokens, texts[i].first);
  const std::vector<Judged>& judged = judge.run();
  auto* const mine = all.data_ptr<double>();
  for (size_t i = static_cast<size_t>(in.replica); i < texts.size() && in.counts;
       i += static_cast<size_t>(in.num_replicas)) {
    const std::vector<double>& logprobs = judged[i].logprobs;
    check_invariant(std::ssize(logprobs) == begin[i + 1] - begin[i], "each token of a text is scored");
    std::ranges::copy(logprobs, mine + begin[i]);
  }
  sum_over_ranks(in, all);
  const auto* values = all.data_ptr<double>();
  if (settings.predictions && in.is_first_rank) {
    std::string lines;
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::vector<double> own(values + begin[i], values + begin[i + 1]);
      const std::vector<int64_t> ids(texts[i].tokens.begin() + texts[i].first, texts[i].tokens.end());
      lines +=
          nlohmann::ordered_json{
              {"tokens", ids}, {"logprobs", own}, {"sum", std::accumulate(own.begin(), own.end(), 0.0)}}
              .dump() +
          "\n";
    }
    base::write_named_file(*settings.predictions, lines);
  }
  return {{"texts", texts.size()},
          {"tokens", begin.back()},
          {"logprob", std::accumulate(values, values + begin.back(), 0.0) / double(begin.back())}};
}

}  // namespace trireme::train
