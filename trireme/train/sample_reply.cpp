#include "trireme/train/sample_reply.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "trireme/adapt/from_settings.h"
#include "trireme/base/cgroup.h"
#include "trireme/base/error.h"
#include "trireme/base/mix64.h"
#include "trireme/base/parse_whole.h"
#include "trireme/base/text.h"
#include "trireme/data/examples.h"
#include "trireme/data/show.h"
#include "trireme/generate/alone.h"
#include "trireme/text/chat_encoder.h"
#include "trireme/text/ends_of_text.h"
#include "trireme/train/inference.h"
#include "trireme/train/run_data.h"
#include "trireme/train/setup.h"
#include "trireme/train/whole_weights.h"

namespace trireme::train {
namespace {

constexpr size_t kShownPromptBytes = 160;  // of a prompt

std::vector<int64_t> wide_ids(std::span<const int32_t> ids) { return {ids.begin(), ids.end()}; }

std::vector<int64_t> prompt_of_text(const std::string& text, const data::TrainingData& data,
                                    const text::Tokenizer& tokenizer) {
  if (data.chat_template.empty()) return wide_ids(tokenizer.encode(text, text::kWholeText));
  const text::ChatFamily& family = text::find_chat_family(data.chat_template);
  const std::vector<text::ChatMessage> message = {{"user", text}};
  return wide_ids(
      text::ChatEncoder(tokenizer, family).encode(text::render_chat(family, message, {.for_reply = true})).ids);
}

std::vector<int64_t> ends_of_replies(const Settings& settings, const data::TrainingData& data,
                                     const text::Tokenizer& tokenizer) {
  std::vector<int64_t> ids = stop_ids_of(settings.model.name, tokenizer);
  if (!tokenizer.eos_id())
    for (const int32_t id : tokenizer.document_separator()) ids.push_back(id);
  if (data.chat_template.empty()) {
    if (const auto id = text::special_separator(tokenizer); id && settings.data.append_eos) ids.push_back(*id);
    return ids;
  }
  if (const auto id = text::end_of_reply(text::find_chat_family(data.chat_template), tokenizer)) ids.push_back(*id);
  return ids;
}

std::string shown(const text::Tokenizer& tokenizer, std::span<const int64_t> ids) {
  std::string text = tokenizer.decode(std::vector<int32_t>(ids.begin(), ids.end()));
  if (text.size() <= kShownPromptBytes) return data::visible(text);
  size_t cut = text.size() - kShownPromptBytes;
  while (cut < text.size() && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) ++cut;  // inside a character
  return "..." + data::visible(text.substr(cut));
}

model::Precision sample_precision(const Settings& settings) {
  model::Precision precision = resolve_precision(settings);
  precision.on_gpu = precision.float8 = false;
  return precision;
}

int64_t cached_tokens(const Settings& settings, const model::ModelConfig& config, int64_t prompt) {
  return std::min(config.longest_generation(), prompt + *settings.eval.max_new_tokens);
}

generate::Room sample_room(int64_t tokens) {
  return {.texts = 1, .tokens = std::min<int64_t>(512, tokens), .cache_tokens = tokens, .bounds_context = true};
}

}  // namespace

std::vector<int64_t> sample_prompt(const Settings& settings, const data::TrainingData& data,
                                   const text::Tokenizer& tokenizer) {
  const std::string& wanted = settings.eval.evaluate_example;
  const auto number = base::parse_whole<int64_t>(wanted, 10);
  std::vector<int64_t> prompt;
  if (wanted == "first" || wanted == "random" || number) {
    const int64_t index = wanted == "random"
                              ? static_cast<int64_t>(base::mix_key(static_cast<uint64_t>(settings.seed), 0) %
                                                     static_cast<uint64_t>(data::count_documents(*data.examples)))
                              : number.value_or(0);
    std::vector<int32_t> opening;
    if (settings.data.learn == text::Learn::all && !data.chat_template.empty())
      opening = text::ChatEncoder(tokenizer, text::find_chat_family(data.chat_template)).opening_of_reply();
    const auto found = data.chat_template.empty()
                           ? std::nullopt
                           : data::prompt_of(*data.examples, index, settings.data.learn, opening);
    prompt = found.value_or(std::vector<int64_t>());
    if (prompt.empty())
      throw UsageError(fmt::format(
          "eval.evaluate_example {} takes the prompt of a conversation, and {}; give the prompt itself, as in "
          "--eval.evaluate_example \"Who are you?\"",
          wanted,
          data.chat_template.empty() ? "these data hold plain text"
          : found                    ? "this one begins with its reply"
                  : "no reply is marked in this one: it lies behind train.max_seq_length, or nothing "
                    "in the template stands between the two"));
  } else {
    prompt = prompt_of_text(wanted, data, tokenizer);
  }
  if (prompt.empty()) throw UsageError("eval.evaluate_example is empty; give it a prompt, or first");
  return prompt;
}

int64_t sample_bytes(const model::ModelConfig& config, const model::Adapters& adapters,
                     const model::Precision& precision, int64_t tokens) {
  const model::ModelConfig merged = merged_config(config, adapters);
  const std::vector<model::ParameterSpec> whole = whole_parameters(merged, precision);
  return generate::alone_bytes(merged, precision, sample_room(tokens)) + collecting_bytes(whole, adapters);
}

int64_t most_sample_bytes(const Settings& settings, const model::ModelConfig& config) {
  if (settings.task != Learning::language || !settings.eval.max_new_tokens) return 0;
  return sample_bytes(config, adapt::adapters_of(settings.lora, config), sample_precision(settings),
                      cached_tokens(settings, config, sequence_length(settings, config)));
}

void check_sample(const Settings& settings, const model::ModelConfig& config, const data::TrainingData& data,
                  const text::Tokenizer& tokenizer) {
  if (!settings.eval.max_new_tokens) return;
  const model::Adapters adapters = adapt::adapters_of(settings.lora, config);
  check_mergeable(config, adapters, "eval.max_new_tokens asks for sample replies, which merged weights write");
  const auto prompt = static_cast<int64_t>(sample_prompt(settings, data, tokenizer).size());
  const int64_t bytes =
      sample_bytes(config, adapters, sample_precision(settings), cached_tokens(settings, config, prompt));
  const int64_t available = base::available_memory().bytes;
  if (bytes > available)
    throw UsageError(fmt::format(
        "eval.max_new_tokens: a sample reply takes a whole copy of the weights on rank 0, {}, and {} are available; "
        "leave it out, and give a checkpoint to trireme generate",
        base::human_bytes(bytes), base::human_bytes(available)));
}

SampleReply::SampleReply(Session& session, const data::TrainingData& data, const text::Tokenizer& tokenizer)
    : s_(session),
      tokenizer_(tokenizer),
      prompt_(sample_prompt(s_.settings, data, tokenizer)),
      stop_ids_(ends_of_replies(s_.settings, data, tokenizer)) {}

model::Precision SampleReply::precision() const { return sample_precision(s_.settings); }

int64_t SampleReply::capacity() const { return cached_tokens(s_.settings, s_.model.config, std::ssize(prompt_)); }

std::string SampleReply::describe() const {
  return fmt::format(
      "sample   at each evaluation, up to {} in reply to: {}\n"
      "         for it rank 0 takes up to {} beside the plan, a copy of the weights",
      base::plural(*s_.settings.eval.max_new_tokens, "token"), shown(tokenizer_, prompt_),
      base::human_bytes(sample_bytes(s_.model.config, s_.model.adapters, precision(), capacity())));
}

std::string SampleReply::write(const StopCheck& stops) const {
  comm::Communicator& world = s_.world();
  std::unique_ptr<generate::Alone> alone;
  {
    WholeWeights weights(*s_.engine, s_.model, world);
    const model::ModelConfig merged = merged_config(s_.model.config, s_.model.adapters);
    if (s_.is_first_rank()) {
      const auto fill = [&](const model::ParameterSpec& spec, const at::Tensor& tensor) {
        weights.collect(spec, tensor);
      };
      alone = std::make_unique<generate::Alone>(merged, precision(), fill, sample_room(capacity()), capacity());
    } else {
      for (const model::ParameterSpec& spec : whole_parameters(merged, precision())) weights.collect(spec, {});
    }
  }
  // The ranks meet for each token, so that none waits longer than for one token, and all hear of a stop.
  const auto go_on = [&](bool more) {
    const at::Tensor flag = at::full({1}, more ? 1 : 0, at::kLong);
    world.broadcast(flag, 0)->wait();
    return flag.item<int64_t>() != 0 && !stops();
  };
  if (!s_.is_first_rank()) {
    while (go_on(true)) {
    }
    return "";
  }
  std::vector<int64_t> reply;
  const int64_t limit = *s_.settings.eval.max_new_tokens;
  bool ends = false;
  alone->generator().add({.tokens = prompt_,
                          .max_new_tokens = limit,
                          .sampling = {.temperature = 0},
                          .slides = true,
                          .take = [&](int64_t token, double) {
                            ends = std::ranges::find(stop_ids_, token) != stop_ids_.end();
                            if (!ends) reply.push_back(token);
                            return go_on(!ends && std::ssize(reply) < limit);
                          }});
  alone->generator().run();
  std::string text = tokenizer_.decode(std::vector<int32_t>(reply.begin(), reply.end()), {.drawn = true});
  return fmt::format("sample   {}{}", data::visible(text), ends ? "" : " ...");
}

}  // namespace trireme::train
