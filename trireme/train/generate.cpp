#include "trireme/train/generate.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <iterator>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/stopwatch.h"
#include "trireme/base/text.h"
#include "trireme/comm/communicator.h"
#include "trireme/text/chat_encoder.h"
#include "trireme/text/ends_of_text.h"
#include "trireme/text/utf8.h"
#include "trireme/train/cache_room.h"
#include "trireme/train/generate_many.h"
#include "trireme/train/inference.h"
#include "trireme/train/prompt_file.h"
#include "trireme/train/trained_template.h"

namespace trireme::train {

std::string StopWords::push(std::string_view text) {
  if (found_) return "";
  waiting_ += text;
  size_t shown = waiting_.size();
  for (const std::string& word : words_)
    if (const size_t at = waiting_.find(word); !word.empty() && at != std::string::npos)
      found_ = true, shown = std::min(shown, at);
  // Otherwise the longest end of the text with which some word begins has to wait.
  for (const std::string& word : words_)
    for (size_t size = found_ || word.empty() ? 0 : std::min(word.size() - 1, waiting_.size()); size > 0; --size)
      if (std::string_view(waiting_).ends_with(std::string_view(word).substr(0, size))) {
        shown = std::min(shown, waiting_.size() - size);
        break;
      }
  std::string out = waiting_.substr(0, shown);
  waiting_.erase(0, shown);
  return out;
}

std::string StopWords::finish() { return found_ ? "" : std::exchange(waiting_, ""); }

std::vector<int64_t> shown_tokens(const text::Tokenizer& tokenizer, std::vector<int64_t> tokens,
                                  std::span<const std::string> texts, size_t shown_bytes) {
  size_t kept = 0, bytes = 0;
  for (; kept < texts.size() && bytes + texts[kept].size() <= shown_bytes; ++kept) bytes += texts[kept].size();
  const std::string_view part =
      bytes == shown_bytes ? std::string_view() : std::string_view(texts[kept]).substr(0, shown_bytes - bytes);
  // A token without text of its own may be the first part of a character, which the next one completes.
  while (kept > 0 && texts[kept - 1].empty()) --kept;
  tokens.resize(kept);
  if (part.empty()) return tokens;
  std::ranges::copy(tokenizer.encode(part, {.parse_special = false, .before = text::TextBefore::text}),
                    std::back_inserter(tokens));
  return tokens;
}

namespace {

/// The next line of rank 0's standard input, on every rank; nothing at its end.
std::optional<std::string> read_line(comm::Communicator& world) {
  const comm::Patience patience(world);  // a person thinks as long as it takes
  std::string line;
  at::Tensor size = at::full({1}, -1, at::kLong);
  if (world.rank() == 0) {
    if (isatty(STDIN_FILENO) != 0) fmt::print(stderr, "> ");
    if (std::getline(std::cin, line)) size.fill_(static_cast<int64_t>(line.size()));
  }
  world.broadcast(size, 0)->wait();
  if (size.item<int64_t>() < 0) return std::nullopt;
  at::Tensor bytes = at::zeros({std::max<int64_t>(1, size.item<int64_t>())}, at::kByte);
  std::memcpy(bytes.data_ptr(), line.data(), line.size());
  world.broadcast(bytes, 0)->wait();
  return std::string(static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(size.item<int64_t>()));
}

/// The room for a conversation, whose length nobody knows, if the model has more positions.
constexpr int64_t kTalkTokens = 8192;

/// One text at a time.
CacheWish cache_wish(const train::GenerateSettings& g, const Inference& in, int64_t prompt) {
  const int64_t most = g.chat ? kTalkTokens : prompt + g.max_new_tokens;
  if (prompt > in.config.longest_generation())
    throw UsageError(fmt::format("the prompt has {}, and {}; shorten it", base::plural(prompt, "token"),
                                 in.config.generation_positions()));
  if (g.cache_tokens && prompt > *g.cache_tokens)
    throw UsageError(fmt::format("generate.cache_tokens is {}, and the prompt has {}; make the cache larger",
                                 *g.cache_tokens, base::plural(prompt, "token")));
  const int64_t tokens = std::min(g.cache_tokens.value_or(most), in.config.longest_generation());
  return {.room = {.texts = 1,
                   .tokens = in.config.is_free() ? tokens : std::min<int64_t>(512, tokens),
                   .cache_tokens = tokens,
                   .bounds_context = true},
          .needed_tokens = g.chat ? 1 : tokens,
          .is_given = g.cache_tokens.has_value()};
}

/// Draws texts and shows them token by token.
class Writer {
 public:
  Writer(const Settings& settings, Inference& in, const std::function<void(std::string_view)>& write)
      : g_(settings.generate), free_(settings.model.free), in_(in), write_(write) {}

  void show(std::string_view text) {
    if (!in_.is_first_rank || text.empty()) return;
    write_(text);
    line_is_open_ = text.back() != '\n';
  }

  /// For chat templates whose replies begin with a space.
  void drop_first_space() { drops_space_ = true; }

  /// Returns the new tokens, without those of a stop word.
  std::vector<int64_t> reply(std::vector<int64_t> prompt) {
    std::vector<int64_t> tokens;
    std::vector<std::string> texts;  // of the tokens
    size_t shown_bytes = 0;
    text::Utf8Stream stream;
    StopWords stop(g_.stop.value_or(std::vector<std::string>{}));
    generate::Request request = request_of(g_, free_);
    request.tokens = std::move(prompt);
    request.prompt = static_cast<uint64_t>(number_++);
    request.stop_ids = in_.stop_ids;
    request.slides = true;
    request.parks = g_.chat;
    request.take = [&](int64_t token, double) {
      std::string text = in_.tokenizer->token_bytes(static_cast<int32_t>(token));
      const bool drops = drops_space_ && tokens.empty() && text.starts_with(' ');
      if (drops) text.erase(0, 1);
      tokens.push_back(token);
      texts.push_back(stream.push(text));
      const std::string shown = stop.push(texts.back());
      if (drops) texts.back().insert(0, 1, ' '), ++shown_bytes;  // the template writes it
      shown_bytes += shown.size();
      show(shown);
      return !stop.found();
    };
    try {
      in_.generator->add(std::move(request));
      in_.generator->run();
    } catch (...) {  // its message begins a line of its own
      if (line_is_open_) show("\n");
      throw;
    }
    if (!stop.found()) show(stop.push(stream.finish()));
    show(stop.finish());
    show("\n");
    count_ += std::ssize(tokens);
    if (stop.found()) return shown_tokens(*in_.tokenizer, std::move(tokens), texts, shown_bytes);
    return tokens;
  }

  int64_t count() const { return count_; }

 private:
  const train::GenerateSettings& g_;
  const model::FreeSettings& free_;
  Inference& in_;
  const std::function<void(std::string_view)>& write_;
  int64_t number_ = 0;
  bool drops_space_ = false, line_is_open_ = false;
  int64_t count_ = 0;
};

// One reply to each line of standard input.
void converse(const train::GenerateSettings& g, Inference& in, Writer& writer) {
  const text::ChatFamily& family = chat_family(g, in.folder, in.adapter);
  if (in.is_first_rank) tell_template(g, in);
  const text::ChatEncoder encoder(*in.tokenizer, family);
  encoder.require_stop();
  if (*family.words_begin != '\0') writer.drop_first_space();
  add_stop(family, in);
  std::vector<int64_t> talk;
  for (bool first = true; const auto line = read_line(*in.world); first = false) {
    const text::ChatMessage message{"user", *line};
    std::vector<text::ChatMessage> begin;
    if (g.system) begin.push_back({"system", *g.system});
    begin.push_back(message);
    const auto pieces =
        first ? text::render_chat(family, begin, {.for_reply = true}) : text::render_next(family, message);
    const std::vector<int32_t> ids = encoder.encode(pieces).ids;
    talk.insert(talk.end(), ids.begin(), ids.end());
    const generate::Limits& limits = in.generator->limits();
    if (in.is_first_rank && std::ssize(talk) > limits.context)
      fmt::print(stderr, "the conversation has {}, and there is room for {}: the model reads its last {}\n",
                 base::plural(std::ssize(talk), "token"), limits.context, limits.slid());
    const std::vector<int64_t> reply = writer.reply(talk);
    talk.insert(talk.end(), reply.begin(), reply.end());
  }
}

}  // namespace

generate::Request request_of(const GenerateSettings& g, const model::FreeSettings& free) {
  const auto seed = static_cast<uint64_t>(g.seed);
  generate::Request request{.max_new_tokens = g.max_new_tokens,
                            .sampling = {.repetition_penalty = g.repetition_penalty,
                                         .temperature = g.temperature,
                                         .top_k = g.top_k,
                                         .top_p = g.top_p,
                                         .min_p = g.min_p,
                                         .seed = seed},
                            .codes = {.seed = seed}};
  if (free.latent_seed) request.codes.seed = static_cast<uint64_t>(*free.latent_seed);
  request.codes.fixed = free.latent;
  return request;
}

void tell_template(const GenerateSettings& g, const Inference& in) {
  const auto known = g.chat_template ? std::nullopt : template_of_model(in.folder, in.adapter);
  if (const std::string remark = known ? known->remark(in.folder) : ""; !remark.empty())
    fmt::print(stderr, "{}\n", remark);
}

void add_stop(const text::ChatFamily& family, Inference& in) {
  if (const auto id = text::end_of_reply(family, *in.tokenizer)) in.stop_ids.push_back(*id);
}

void check_stop_words(std::string_view setting, const std::optional<std::vector<std::string>>& words) {
  if (words && std::ranges::any_of(*words, [](const std::string& word) { return word.empty(); }))
    throw UsageError(fmt::format("{} has an empty word, which would stop nothing; leave it out", setting));
}

void check_codes(const Settings& settings, const model::ModelConfig& config) {
  const model::FreeSettings& free = settings.model.free;
  if (!config.is_free() && (free.latent || free.latent_seed))
    throw UsageError(
        fmt::format("{} is of the codes of a Free Transformer's tokens, and this model is none; leave it out",
                    free.latent ? "free.latent" : "free.latent_seed"));
  const int64_t bits = config.free.latent_bits;
  if (free.latent && (*free.latent < 0 || (bits < 63 && *free.latent >> bits != 0)))
    throw UsageError(
        fmt::format("free.latent is {}, and a code of {} bits is from 0 to 2^{} - 1", *free.latent, bits, bits));
}

void check_generate(const Settings& settings) {
  const GenerateSettings& g = settings.generate;
  check_stop_words("generate.stop", g.stop);
  if (g.prompts && (g.chat || !g.prompt.empty()))
    throw UsageError("--prompts names a file of prompts; leave out --prompt and --chat");
  if (g.chat && !g.prompt.empty())
    throw UsageError("--chat answers lines of standard input, and --prompt is one text; leave out one of them");
  if (!g.prompts && (g.output || g.samples > 1 || g.logprobs))
    throw UsageError(fmt::format("{} goes with a file of prompts; name one with --prompts FILE.jsonl",
                                 g.output        ? "--output"
                                 : g.samples > 1 ? "--samples"
                                                 : "--logprobs"));
  const adapt::ModelPlace place = place_of(g);
  const Inference known = check_inference(settings, place, /*one_copy=*/!g.prompts);
  check_codes(settings, known.config);
  if (g.chat)
    text::ChatEncoder(*known.tokenizer, chat_family(g, known.folder, adapt::adapter_of(place))).require_stop();
  if (g.prompts) check_prompts(settings, known);
  if (!g.prompts && !g.chat) cache_wish(g, known, std::ssize(encode({.text = g.prompt}, *known.tokenizer, g)));
}

int generate(const Settings& settings, const launch::RankEnvironment& environment,
             const std::function<void(std::string_view)>& write) {
  const train::GenerateSettings& g = settings.generate;
  if (g.prompts) return generate_many(settings, environment);
  std::vector<int64_t> prompt;
  Inference in = open_inference(settings, environment, place_of(g), [&](const Inference& known) {
    check_codes(settings, known.config);
    if (!g.chat) prompt = encode({.text = g.prompt}, *known.tokenizer, g);
    return fitting_room(settings, environment, known, cache_wish(g, known, std::ssize(prompt)));
  });
  Writer writer(settings, in, write);
  const base::Stopwatch watch;
  if (g.chat) {
    converse(g, in, writer);
  } else {
    writer.show(g.prompt);
    writer.reply(prompt);
  }
  if (in.is_first_rank && !g.chat && isatty(STDERR_FILENO) != 0)
    fmt::print(stderr, "{} tokens in {:.1f} s, {:.1f} tokens/s\n", writer.count(), watch.seconds(),
               double(writer.count()) / watch.seconds());
  return 0;
}

}  // namespace trireme::train
