#include "trireme/train/answers.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/mix64.h"
#include "trireme/base/stopwatch.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/comm/communicator.h"
#include "trireme/text/chat_template.h"
#include "trireme/text/ends_of_text.h"
#include "trireme/train/answer_room.h"
#include "trireme/train/generate.h"
#include "trireme/train/inference.h"
#include "trireme/train/prompt_file.h"
#include "trireme/train/setup.h"
#include "trireme/train/trained_template.h"

namespace trireme::train {
namespace {

GenerateSettings prompt_settings(const GrpoSettings& s, const std::string& file) {
  GenerateSettings g;
  g.prompts = file;
  g.system = s.system;
  g.chat_template = s.chat_template;
  return g;
}

// A reward would fail for every answer. (Where only some lines lack the key, their groups fail.)
void require_answers(const rewards::RewardSettings& s, std::string_view setting, const std::string& file,
                     const std::vector<Prompt>& prompts) {
  const auto has_key = [&](const Prompt& prompt) { return prompt.others.contains(s.answer_key); };
  for (const std::string& name : s.functions.value_or(std::vector<std::string>{})) {
    if (!rewards::reads_answer(name)) continue;
    if (std::ranges::none_of(prompts, has_key))
      throw UsageError(
          fmt::format("{}: no line of {} has a key \"{}\", which the reward {} reads; name another one with "
                      "reward.answer_key",
                      setting, file, s.answer_key, name));
    const auto is_judged = [&](const Prompt& prompt) {
      return rewards::has_right_answer(name, nlohmann::json(prompt.others), s);
    };
    if (std::ranges::none_of(prompts, is_judged))
      throw UsageError(fmt::format(
          "{}: no line of {} has a {} under \"{}\", which the reward {} compares with; name another key with "
          "reward.answer_key{}",
          setting, file, name == "number" ? "number" : "text or number", s.answer_key, name,
          name == "number" ? ", or take the reward exact for texts" : ""));
  }
}

// A conversation as rewards see it.
std::string joined(const std::vector<text::ChatMessage>& messages) {
  std::string text;
  for (const text::ChatMessage& message : messages)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "\n", message.role, message.content);
  return text;
}

bool has_answers(const rewards::RewardSettings& s, const nlohmann::json& row) {
  const std::vector<std::string> names = s.functions.value_or(std::vector<std::string>{});
  return std::ranges::all_of(names, [&](const std::string& name) {
    return !rewards::reads_answer(name) || rewards::has_right_answer(name, row, s);
  });
}

std::vector<int64_t> ends_of_answers(const Settings& settings, const text::Tokenizer& tokenizer) {
  std::vector<int64_t> ids = stop_ids_of(settings.model.name, tokenizer);
  const GrpoSettings& g = settings.grpo;
  std::optional<std::string> family = g.chat_template;
  if (!family)
    if (auto known = template_of_model(settings.model.name, settings.lora.initial_adapter.value_or("")))
      family = std::move(known->name);
  if (!family) return ids;
  if (const auto id = text::end_of_reply(text::find_chat_family(*family), tokenizer)) ids.push_back(*id);
  return ids;
}

}  // namespace

std::string PromptSet::remarks(const Settings& settings) const {
  std::string text;
  if (too_long > 0)
    text += fmt::format(", {} too long and left out (grpo.max_prompt_length {})", too_long,
                        settings.grpo.max_prompt_length);
  if (unanswered > 0)
    text += fmt::format(", {} without a right answer, whose groups fail (reward.answer_key {})", unanswered,
                        settings.reward.answer_key);
  return text;
}

PromptSet read_prompt_set(const Settings& settings, std::string_view setting, const std::string& file,
                          const text::Tokenizer& tokenizer) {
  const GrpoSettings& s = settings.grpo;
  GenerateSettings g = prompt_settings(s, file);
  const std::vector<Prompt> prompts = read_prompts(file, setting, ResultKeys::others);
  require_answers(settings.reward, setting, file, prompts);
  name_template(g, prompts, settings.model.name, settings.lora.initial_adapter.value_or(""), "grpo.chat_template");
  PromptSet questions;
  for (const Prompt& prompt : prompts) {
    std::vector<int64_t> tokens = encode(prompt, tokenizer, g);
    if (std::ssize(tokens) > s.max_prompt_length) {
      ++questions.too_long;
      continue;
    }
    const bool chats = !prompt.messages.empty();
    if (chats) questions.chat_template = *g.chat_template;
    questions.all.push_back({.tokens = std::move(tokens),
                             .text = chats ? joined(prompt.messages) : prompt.text,
                             .row = nlohmann::json(prompt.others),
                             .place = fmt::format("{}:{}", file, prompt.line)});
    if (!has_answers(settings.reward, questions.all.back().row)) ++questions.unanswered;
  }
  if (questions.all.empty())
    throw UsageError(
        fmt::format("{}: {}: every prompt has more than grpo.max_prompt_length {} tokens; allow longer ones", setting,
                    file, s.max_prompt_length));
  return questions;
}

AnswerWriter::AnswerWriter(Session& session, const text::Tokenizer& tokenizer,
                           const std::vector<rewards::Weighted>& rewards)
    : s_(session),
      tokenizer_(tokenizer),
      rewards_(rewards),
      stop_ids_(ends_of_answers(s_.settings, tokenizer)),
      trained_(copies_of(s_.engine->plan().request)) {
  if (s_.settings.grpo.rollout_quantize == base::BlockFormat::none) return;
  sampler_ = std::make_unique<QuantizedSampler>(s_);
  quantized_ = {.mine = s_.world().rank(), .count = s_.world().size()};  // every rank has a whole model
  for (int rank = 0; rank < quantized_.count; ++rank) quantized_.heads.push_back(rank);
}

AnswerWriter::Copies AnswerWriter::copies_of(const plan::StepRequest& request) {
  // Ranks that divide a sequence in training (cp) answer different questions.
  const auto copy_of = [](const plan::StepRequest& r) {
    return r.data_index() * r.size(comm::Axis::cp) + r.coordinate(comm::Axis::cp);
  };
  Copies copies{.mine = copy_of(request), .count = request.num_data_ranks() * request.size(comm::Axis::cp)};
  const auto is_head = [](const plan::StepRequest& r) {
    return r.coordinate(comm::Axis::tp) == 0 && r.coordinate(comm::Axis::pp) == 0;
  };
  copies.judges = is_head(request);
  copies.heads.resize(static_cast<size_t>(copies.count));
  for (int rank = 0; rank < request.mesh.world_size(); ++rank)
    if (const plan::StepRequest other = request.of_rank(rank); is_head(other))
      copies.heads[static_cast<size_t>(copy_of(other))] = rank;
  return copies;
}

void AnswerWriter::begin_rollout() {
  const base::Stopwatch watch;
  seconds_ = {};
  if (sampler_) sampler_->load();
  count(watch.seconds(), 0);
}

void AnswerWriter::count(double writing, double judging) {
  const at::Tensor seconds = at::tensor({writing, judging}, at::kDouble);
  s_.world().all_reduce(seconds, seconds, {.op = comm::ReduceOp::max})->wait();
  seconds_.writing += seconds[0].item<double>();
  seconds_.judging += seconds[1].item<double>();
}

std::string AnswerWriter::text_of(const RolloutAnswer& answer) const {
  std::vector<int32_t> ids(answer.tokens.begin(), answer.tokens.end());
  if (!ids.empty() && std::ranges::find(stop_ids_, answer.tokens.back()) != stop_ids_.end()) ids.pop_back();
  StopWords stop(s_.settings.grpo.stop.value_or(std::vector<std::string>{}));
  std::string text = stop.push(tokenizer_.decode(ids, {.drawn = true}));
  return text + stop.finish();
}

std::vector<RolloutGroup> AnswerWriter::write_own(const std::vector<AskedPrompt>& questions,
                                                  std::span<const int64_t> numbers, const Drawing& drawing,
                                                  const Copies& copies, bool& is_whole) {
  const GrpoSettings& g = s_.settings.grpo;
  generate::Generator generator(sampler_ && drawing.of_rollout ? sampler_->engine() : *s_.engine, room_for_answers(g));
  std::vector<RolloutGroup> groups;
  for (size_t i = static_cast<size_t>(copies.mine); i < numbers.size(); i += static_cast<size_t>(copies.count))
    groups.push_back({.prompt = numbers[i],
                      .tokens = questions[static_cast<size_t>(numbers[i])].tokens,
                      .answers = std::vector<RolloutAnswer>(static_cast<size_t>(drawing.samples)),
                      .failure = ""});
  auto place = static_cast<uint64_t>(copies.mine);  // of the question
  for (RolloutGroup& group : groups) {
    for (size_t sample = 0; sample < group.answers.size(); ++sample) {
      RolloutAnswer& answer = group.answers[sample];
      auto stop = std::make_shared<StopWords>(g.stop.value_or(std::vector<std::string>{}));
      generator.add({.tokens = group.tokens,
                     .max_new_tokens = g.max_completion_length,
                     .sampling = {.temperature = drawing.likeliest ? 0 : g.temperature,
                                  .top_k = g.top_k,
                                  .top_p = g.top_p,
                                  .min_p = g.min_p,
                                  .seed = static_cast<uint64_t>(s_.settings.seed)},
                     .prompt = base::mix_key(drawing.key, place),
                     .sample = sample,
                     .stop_ids = stop_ids_,
                     .logprobs = !drawing.likeliest,
                     .takes_stop = true,
                     .take =
                         [this, &answer, stop](int64_t token, double logprob) {
                           answer.tokens.push_back(token);
                           answer.logprobs.push_back(logprob);
                           stop->push(tokenizer_.token_bytes(static_cast<int32_t>(token)));
                           return !stop->found();
                         },
                     .finished =
                         [&answer](generate::Finish why) {
                           answer.is_truncated = why == generate::Finish::length || why == generate::Finish::context;
                         }});
    }
    place += static_cast<uint64_t>(copies.count);
  }
  is_whole = generator.run(drawing.gives_up);
  return groups;
}

void AnswerWriter::judge(const AskedPrompt& question, RolloutGroup& group, int64_t step,
                         const rewards::GivesUp& gives_up) const {
  std::vector<std::string> texts;
  for (const RolloutAnswer& answer : group.answers) texts.push_back(text_of(answer));
  std::vector<rewards::Answer> answers;
  for (size_t i = 0; i < texts.size(); ++i)
    answers.push_back({.prompt = question.text,
                       .completion = texts[i],
                       .row = &question.row,
                       .tokens = std::ssize(group.answers[i].tokens),
                       .is_truncated = group.answers[i].is_truncated,
                       .prompt_number = group.prompt,
                       .sample = static_cast<int64_t>(i),
                       .place = question.place});
  for (RolloutAnswer& answer : group.answers) answer.parts.clear(), answer.reward = 0;
  for (const rewards::Weighted& weighted : rewards_) {
    rewards::Scores scores(answers.size());
    try {
      scores = weighted.reward->score(answers, step, gives_up);
    } catch (const rewards::Failure& failure) {
      if (group.failure.empty()) group.failure = fmt::format("{}: {}", weighted.reward->name(), failure.what());
    }
    for (size_t i = 0; i < answers.size(); ++i) {
      RolloutAnswer& answer = group.answers[i];
      answer.parts.push_back(scores[i].value_or(kLeftOut));
      if (answer.reward && scores[i]) answer.reward = *answer.reward + weighted.weight * *scores[i];
      if (!scores[i]) answer.reward.reset();
    }
  }
  for (RolloutAnswer& answer : group.answers)
    if (answer.reward) *answer.reward += overlong_penalty(s_.settings.grpo, std::ssize(answer.tokens));
}

std::vector<RolloutGroup> AnswerWriter::write(const std::vector<AskedPrompt>& questions,
                                              std::span<const int64_t> numbers, const Drawing& drawing, int64_t step) {
  const Copies& copies = sampler_ && drawing.of_rollout ? quantized_ : trained_;
  const base::Stopwatch writing;
  bool is_whole = true;
  std::vector<RolloutGroup> own = write_own(questions, numbers, drawing, copies, is_whole);
  const double written = writing.seconds();
  double judged = 0;
  std::string mine;
  bool gave_up = !is_whole;
  const comm::Patience patience(s_.world());  // for texts and rewards of the others
  checkpoint::agree(s_.world(), [&] {
    if (!copies.judges || gave_up) return;
    const base::Stopwatch judging;
    for (RolloutGroup& group : own) {
      if (drawing.gives_up && drawing.gives_up()) break;
      judge(questions[static_cast<size_t>(group.prompt)], group, step, drawing.gives_up);
    }
    gave_up = drawing.gives_up && drawing.gives_up();
    judged = judging.seconds();
    mine = to_json({.groups = std::move(own)});
  });
  if (drawing.gives_up) {
    const at::Tensor one = at::tensor({int64_t{gave_up}}, at::kLong), any = at::empty_like(one);
    s_.world().all_reduce(any, one, {.op = comm::ReduceOp::max})->wait();
    if (any.item<int64_t>() > 0) throw StepGivenUp();
  }
  count(written, judged);
  std::vector<RolloutGroup> groups(numbers.size());
  for (int copy = 0; copy < copies.count; ++copy) {
    const int head = copies.heads[static_cast<size_t>(copy)];
    Rollout part = parse_rollout(checkpoint::broadcast_text(s_.world(), mine, head), "");
    size_t at = static_cast<size_t>(copy);
    for (RolloutGroup& group : part.groups) {
      groups[at] = std::move(group);
      at += static_cast<size_t>(copies.count);
    }
  }
  return groups;
}

}  // namespace trireme::train
