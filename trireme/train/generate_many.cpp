#include "trireme/train/generate_many.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "trireme/adapt/adapter_folder.h"
#include "trireme/adapt/base_fingerprint.h"
#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/mix64.h"
#include "trireme/base/stopwatch.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/observe/work_bar.h"
#include "trireme/text/utf8.h"
#include "trireme/train/cache_room.h"
#include "trireme/train/generate.h"
#include "trireme/train/run_data.h"

namespace trireme::train {
namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

std::string hash_of_prompts(const GenerateSettings& g) {
  return base::checksum_text(base::hash_text(base::read_file(*g.prompts)));
}

/// What the results depend on. A folder is the same one however it is written, and may hold another model later.
/// Errors    UsageError, CheckpointError: a folder that cannot be read
std::string about(const Settings& settings) {
  const GenerateSettings& g = settings.generate;
  const fs::path folder = adapt::weights_of(place_of(g)), adapter = adapt::adapter_of(place_of(g));
  ordered_json j = {
      {"model", fs::weakly_canonical(folder).string()},
      {"weights", adapt::mark_of(adapt::open_base(folder))},
      {"adapter", adapter.empty() ? "" : fs::weakly_canonical(adapter).string()},
      {"adapter_weights", adapter.empty() ? "" : adapt::mark_of(adapt::open_adapter_folder(adapter).files)},
      {"quantize", base::traits_of(settings.model.quantize).name},
      {"precision", c10::toString(inference_precision(settings).compute)},
      {"prompts", hash_of_prompts(g)},
      {"max_new_tokens", g.max_new_tokens},
      {"temperature", g.temperature},
      {"top_k", g.top_k.value_or(0)},
      {"top_p", g.top_p},
      {"min_p", g.min_p},
      {"repetition_penalty", g.repetition_penalty},
      {"logprobs", g.logprobs},
      {"seed", g.seed},
      {"latent", settings.model.free.latent.value_or(-1)},
      {"latent_seed", settings.model.free.latent_seed.value_or(-1)},
      {"stop", g.stop.value_or(std::vector<std::string>{})},
      {"system", g.system.value_or("")},
      {"chat_template", g.chat_template.value_or("")}};
  // Files of results that were begun without it stay the same.
  if (settings.model.quantize_head != base::BlockFormat::none)
    j["quantize_head"] = base::traits_of(settings.model.quantize_head).name;
  return base::json_text(j, 1) + "\n";
}

/// The prompts of the file with their tokens.
struct EncodedPrompts {
  std::vector<Prompt> prompts;
  std::vector<std::vector<int64_t>> tokens;
  GenerateSettings asked;  ///< the settings, with the template of conversations

  bool has_conversations() const {
    return std::ranges::any_of(prompts, [](const Prompt& p) { return !p.messages.empty(); });
  }
};

/// Errors    UsageError naming the line
EncodedPrompts encode_prompts(const GenerateSettings& g, const Inference& known) {
  EncodedPrompts all{.prompts = read_prompts(*g.prompts, "generate.prompts"), .asked = g};
  name_template(all.asked, all.prompts, known.folder, adapt::adapter_of(place_of(g)));
  for (const Prompt& prompt : all.prompts) {
    all.tokens.push_back(encode(prompt, *known.tokenizer, all.asked));
    if (all.tokens.back().empty())
      throw UsageError(
          fmt::format("{}:{}: the prompt is empty: give at least one token to start from", *g.prompts, prompt.line));
    if (const int64_t length = std::ssize(all.tokens.back()); length > known.config.longest_generation())
      throw UsageError(fmt::format("{}:{}: the prompt has {}, and {}; shorten it", *g.prompts, prompt.line,
                                   base::plural(length, "token"), known.config.generation_positions()));
  }
  return all;
}

/// Room for the longest texts of a batch, or for as many tokens as the settings say.
CacheWish cache_wish(const GenerateSettings& g, const Inference& in, const std::vector<std::vector<int64_t>>& prompts) {
  CacheWish wish = wish_to_write(in.config, prompts, g.samples, g.max_new_tokens, g.batch_size);
  wish.room.cache_tokens = g.cache_tokens.value_or(wish.room.cache_tokens);
  wish.is_given = g.cache_tokens.has_value();
  return wish;
}

/// The texts of this rank's prompts, as they are written.
class Many {
 public:
  /// `text_stops`: the ids that end a text that is no reply; a reply ends with those of `in`.
  Many(const Settings& settings, Inference& in, const std::vector<Prompt>& prompts, std::vector<int64_t> text_stops,
       ResultFile& results)
      : settings_(settings),
        g_(settings.generate),
        in_(in),
        prompts_(prompts),
        text_stops_(std::move(text_stops)),
        results_(results),
        bar_("texts") {}

  void add(int64_t index, int64_t sample, const std::vector<int64_t>& tokens) {
    auto text = std::make_shared<Text>(g_.stop.value_or(std::vector<std::string>{}));
    generate::Request request = request_of(g_, settings_.model.free);
    request.tokens = tokens;
    request.prompt = static_cast<uint64_t>(index), request.sample = static_cast<uint64_t>(sample);
    if (!settings_.model.free.latent_seed)  // it gives all texts the same codes
      request.codes.seed = base::mix_key(base::mix_key(request.codes.seed, request.prompt), request.sample);
    request.stop_ids = prompts_[static_cast<size_t>(index)].messages.empty() ? text_stops_ : in_.stop_ids;
    request.logprobs = g_.logprobs;
    request.take = [this, text](int64_t token, double logprob) {
      text->tokens.push_back(token);
      text->logprobs.push_back(logprob);
      text->text += text->stop.push(text->stream.push(in_.tokenizer->token_bytes(static_cast<int32_t>(token))));
      ++tokens_;
      return !text->stop.found();
    };
    request.finished = [this, text, index, sample](generate::Finish why) { finish(*text, index, sample, why); };
    ++count_;
    in_.generator->add(std::move(request));
  }

  int64_t tokens() const { return tokens_; }
  int64_t count() const { return count_; }

 private:
  struct Text {
    explicit Text(std::vector<std::string> words) : stop(std::move(words)) {}
    std::string text;
    std::vector<int64_t> tokens;
    std::vector<double> logprobs;
    text::Utf8Stream stream;
    StopWords stop;
  };

  void finish(Text& t, int64_t index, int64_t sample, generate::Finish why) {
    const bool found = t.stop.found();
    if (!found) t.text += t.stop.push(t.stream.finish()) + t.stop.finish();
    ++done_;
    if (in_.is_first_rank) bar_.show(double(done_) / double(count_));
    if (!in_.counts) return;
    const Prompt& prompt = prompts_[static_cast<size_t>(index)];
    ordered_json result = {{"index", index}, {"sample", sample}};
    result.update(prompt.others);
    if (prompt.messages.empty()) result["prompt"] = prompt.text;
    result["text"] = t.text;
    result["finish_reason"] = why == generate::Finish::stop || found ? "stop" : "length";
    if (g_.logprobs) result["tokens"] = t.tokens, result["logprobs"] = t.logprobs;
    results_.add(result);
  }

  const Settings& settings_;
  const GenerateSettings& g_;
  Inference& in_;
  const std::vector<Prompt>& prompts_;
  std::vector<int64_t> text_stops_;
  ResultFile& results_;
  observe::WorkBar bar_;
  int64_t count_ = 0, done_ = 0, tokens_ = 0;
};

/// 1 for each text that the file holds, a prompt's samples side by side. Ranks may have read the file at different
/// times, and those of a killed command may just be ending; one answer keeps the ranks of a copy together.
std::vector<double> texts_there(const ResultFile& results, int64_t prompts, int64_t samples, const Inference& in) {
  std::vector<double> there;
  for (int64_t i = 0; i < prompts; ++i)
    for (int64_t sample = 0; sample < samples; ++sample) there.push_back(results.has({i, sample}) ? 1 : 0);
  const at::Tensor flags = at::from_blob(there.data(), {std::ssize(there)}, at::kDouble);
  in.world->all_reduce(flags, flags, {.op = comm::ReduceOp::max})->wait();
  return there;
}

}  // namespace

void check_prompts(const Settings& settings, const Inference& known) {
  const GenerateSettings& g = settings.generate;
  check_longest_text(cache_wish(g, known, encode_prompts(g, known).tokens));
  if (!g.output && inference_mesh(settings, world_size(settings)).data_parallel_ranks() > 1)
    throw UsageError("several copies of the model write their texts to one file; name it with --output FILE.jsonl");
  if (g.output && fs::exists(*g.output)) ResultFile(*g.output, about(settings), /*is_first_rank=*/false);
}

std::string texts_written(const Settings& settings) {
  const GenerateSettings& g = settings.generate;
  const std::string lines = base::is_file(*g.output) ? base::read_file(*g.output) : "";
  return fmt::format("{} of {} are written", base::human_count(std::ranges::count(lines, '\n')),
                     base::plural(std::ssize(read_prompts(*g.prompts, "generate.prompts")) * g.samples, "text"));
}

int generate_many(const Settings& settings, const launch::RankEnvironment& environment) {
  const GenerateSettings& g = settings.generate;
  EncodedPrompts all;
  Inference in = open_inference(settings, environment, place_of(g), [&](const Inference& known) {
    check_codes(settings, known.config);
    data::DataIdentity read;
    checkpoint::agree(*known.world, [&] {
      all = encode_prompts(g, known);
      read.add("generate.prompts", hash_of_prompts(g));
    });
    require_same_data(*known.world, read);
    return fitting_room(settings, environment, known, cache_wish(g, known, all.tokens));
  });
  const std::vector<Prompt>& prompts = all.prompts;
  const std::vector<int64_t> text_stops = in.stop_ids;
  if (all.has_conversations()) {
    add_stop(text::find_chat_family(*all.asked.chat_template), in);
    if (in.is_first_rank) tell_template(g, in);
  }
  for (size_t i = 0; i < prompts.size(); ++i) try {  // of all ranks, so that all fail or none
      in.generator->check({.tokens = all.tokens[i], .max_new_tokens = g.max_new_tokens});
    } catch (const UsageError& e) {
      throw UsageError(fmt::format("{}:{}: {}", *g.prompts, prompts[i].line, e.what()));
    }
  const std::string depends_on =
      checkpoint::made_on_all(*in.world, [&] { return g.output && in.is_first_rank ? about(settings) : ""; });
  const std::string same = checkpoint::broadcast_text(*in.world, depends_on, 0);
  const auto file = checkpoint::made_on_all(
      *in.world, [&] { return std::make_unique<ResultFile>(g.output.value_or(""), same, in.is_first_rank); });
  ResultFile& results = *file;
  const base::Stopwatch watch;
  Many many(settings, in, prompts, text_stops, results);
  const std::vector<double> there = texts_there(results, std::ssize(prompts), g.samples, in);
  for (int64_t i = in.replica; i < std::ssize(prompts); i += in.num_replicas)
    for (int64_t sample = 0; sample < g.samples; ++sample)
      if (there[static_cast<size_t>(i * g.samples + sample)] == 0)
        many.add(i, sample, all.tokens[static_cast<size_t>(i)]);
  in.generator->run();
  const at::Tensor sums =
      at::tensor({in.counts ? double(many.tokens()) : 0, in.counts ? double(many.count()) : 0}, at::kDouble);
  sum_over_ranks(in, sums);
  if (!in.is_first_rank) return 0;
  results.finish();
  const double seconds = watch.seconds();
  const auto written = sums[1].item<int64_t>();
  const int64_t asked = std::ssize(prompts) * g.samples;
  if (written == 0)
    fmt::print(stderr, "nothing to write: {} {} there{}\n", base::plural(results.count(), "text"),
               results.count() == 1 ? "was" : "were",
               results.count() > asked ? fmt::format(", more than the {} asked for", base::human_count(asked)) : "");
  else
    fmt::print(stderr, "{} with {} in {:.1f} s, {:.1f} tokens/s{}\n", base::plural(written, "text"),
               base::plural(sums[0].item<int64_t>(), "token"), seconds, sums[0].item<double>() / seconds,
               results.count() == 0
                   ? ""
                   : fmt::format(", beside {} that {} there", results.count(), results.count() == 1 ? "was" : "were"));
  return 0;
}

}  // namespace trireme::train
