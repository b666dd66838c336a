#include "trireme/train/write_answers.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/log.h"
#include "trireme/base/mix64.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/comm/communicator.h"
#include "trireme/observe/work_bar.h"
#include "trireme/text/utf8.h"
#include "trireme/train/generate.h"
#include "trireme/train/score.h"

namespace trireme::train {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kAnswers = 32;  ///< at a time

/// The task's stop words, and the token that ends a text, should the model spell it.
std::vector<std::string> stop_words(const WrittenTask& task, const text::Tokenizer& tokenizer) {
  std::vector<std::string> words = task.until;
  if (const std::optional<int32_t> eos = tokenizer.eos_id()) words.push_back(tokenizer.decode({&*eos, 1}));
  std::erase(words, "");
  return words;
}

/// As the harness cuts: by one word after the other.
std::string text_of(const std::vector<int32_t>& ids, const std::vector<std::string>& words,
                    const text::Tokenizer& tokenizer) {
  std::string text = text::well_formed(tokenizer.decode(ids, {.skip_special = true, .drawn = true}));
  for (const std::string& word : words) text.resize(std::min(text.size(), text.find(word)));
  return text;
}

/// The answers to this copy's questions; others are empty.
class AnswerBatch {
 public:
  AnswerBatch(Inference& in, const EvalTask& task, int64_t seed)
      : in_(in),
        task_(*task.written),
        seed_(static_cast<uint64_t>(seed)),
        words_(stop_words(task_, *in.tokenizer)),
        bar_(task.name),
        answers_(task.questions.size()) {}

  void add(size_t number, const std::vector<int64_t>& prompt) {
    Answer& answer = answers_[number];
    answer.stop = std::make_unique<StopWords>(words_);
    ++count_;
    in_.generator->add({.tokens = prompt,
                        .max_new_tokens = task_.max_new_tokens,
                        .sampling = {.temperature = task_.temperature, .seed = seed_},
                        .prompt = number,
                        .stop_ids = in_.stop_ids,
                        .codes = {.seed = base::mix_key(seed_, number)},
                        .take =
                            [this, &answer](int64_t token, double) {
                              answer.tokens.push_back(static_cast<int32_t>(token));
                              answer.stop->push(in_.tokenizer->token_bytes(answer.tokens.back()));
                              return !answer.stop->found();
                            },
                        .finished =
                            [this](generate::Finish) {
                              if (in_.is_first_rank) bar_.show(double(++done_) / double(count_));
                            }});
  }

  std::vector<std::string> run() {
    in_.generator->run();
    std::vector<std::string> texts;
    for (const Answer& answer : answers_) texts.push_back(text_of(answer.tokens, words_, *in_.tokenizer));
    return texts;
  }

 private:
  struct Answer {
    std::vector<int32_t> tokens = {};
    std::unique_ptr<StopWords> stop = nullptr;
  };
  Inference& in_;
  const WrittenTask& task_;
  uint64_t seed_;
  std::vector<std::string> words_;
  observe::WorkBar bar_;
  std::vector<Answer> answers_;
  int64_t count_ = 0, done_ = 0;
};

/// Every copy's texts, on every rank: question i is that of copy i mod num_replicas.
void share_texts(const Inference& in, std::vector<std::string>& texts) {
  const at::Tensor heads = at::zeros({in.num_replicas}, at::kDouble);  // a rank that knows them, of each copy
  if (in.counts) heads[in.replica] = in.world->rank();
  sum_over_ranks(in, heads);
  const std::string mine = base::json_text(ordered_json(texts));
  for (int copy = 0; copy < in.num_replicas; ++copy) {
    const std::string text = checkpoint::broadcast_text(*in.world, mine, static_cast<int>(heads[copy].item<double>()));
    const auto theirs = base::parse_json(text).get<std::vector<std::string>>();
    for (size_t i = static_cast<size_t>(copy); i < texts.size(); i += static_cast<size_t>(in.num_replicas))
      texts[i] = theirs[i];
  }
}

std::string metric_key(const AnswerFilter& filter) {
  return filter.name == AnswerFilter().name ? "exact_match" : "exact_match," + filter.name;
}

}  // namespace

std::string stderr_key(const std::string& key) {
  const size_t comma = std::min(key.size(), key.find(','));
  return key.substr(0, comma) + "_stderr" + key.substr(comma);
}

std::vector<std::vector<int64_t>> encode_prompts(const Inference& in, const EvalTask& task) {
  const int64_t positions = in.config.longest_generation(), most = positions - task.written->max_new_tokens;
  if (most < 1)
    throw UsageError(fmt::format(
        "evaluate.tasks: answers of {} have up to {} tokens, and {}, for prompt and answer; set max_gen_toks of "
        "generation_kwargs",
        task.name, task.written->max_new_tokens, in.config.generation_positions()));
  std::vector<std::vector<int64_t>> prompts;
  int64_t cut = 0;
  for (const Question& question : task.questions) {
    std::vector<int64_t> tokens =
        question.prompt.empty() ? tokens_before_all(*in.tokenizer) : encode_context(*in.tokenizer, question.prompt);
    if (std::ssize(tokens) > most) tokens.erase(tokens.begin(), tokens.end() - most), ++cut;
    prompts.push_back(std::move(tokens));
  }
  if (cut > 0 && in.is_first_rank)
    base::info("{}: of {} only the newest {} are read, as answers have up to {} and {}", task.name,
               base::plural(cut, "prompt"), base::plural(most, "token"), task.written->max_new_tokens,
               in.config.generation_positions());
  return prompts;
}

CacheWish room_for_written(const Inference& in, const EvalTask& task,
                           const std::vector<std::vector<int64_t>>& prompts) {
  return wish_to_write(in.config, prompts, /*samples=*/1, task.written->max_new_tokens,
                       std::min<int64_t>(kAnswers, std::ssize(prompts)));
}

ordered_json write_answers(Inference& in, const EvalTask& task, const std::vector<std::vector<int64_t>>& prompts,
                           int64_t seed, std::string& lines) {
  AnswerBatch batch(in, task, seed);
  for (auto i = static_cast<size_t>(in.replica); i < prompts.size(); i += static_cast<size_t>(in.num_replicas))
    batch.add(i, prompts[i]);
  std::vector<std::string> texts = batch.run();
  share_texts(in, texts);
  const WrittenTask& written = *task.written;
  std::vector<double> right(written.filters.size(), 0);
  for (size_t i = 0; i < texts.size(); ++i) {
    const Question& question = task.questions[i];
    ordered_json line = {{"task", task.name}, {"text", texts[i]}, {"targets", question.targets}};
    for (size_t f = 0; f < written.filters.size(); ++f) {
      const AnswerFilter& filter = written.filters[f];
      const JudgedAnswer judged = judge_answer(filter, written.match, texts[i], question.targets);
      line["answers"][filter.name] = judged.answer;
      line["exact_match"][filter.name] = judged.is_right ? 1 : 0;
      right[f] += judged.is_right ? 1 : 0;
      if (!judged.given_up.empty() && in.is_first_rank)
        base::warn("{}: answer {} counts as wrong for filter {}: {}", task.name, i + 1, filter.name, judged.given_up);
    }
    lines += base::json_text(line) + "\n";
  }
  const auto count = double(texts.size());
  ordered_json result = {{"questions", texts.size()}};
  for (size_t f = 0; f < written.filters.size(); ++f) {
    const std::string key = metric_key(written.filters[f]);
    result[key] = right[f] / count;
    result[stderr_key(key)] = error_of_mean(right[f] / count, count);
  }
  return result;
}

}  // namespace trireme::train
