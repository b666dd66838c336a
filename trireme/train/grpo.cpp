#include "trireme/train/grpo.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "trireme/adapt/from_settings.h"
#include "trireme/adapt/open_model.h"
#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/mix64.h"
#include "trireme/base/not_text.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/data/permutation.h"
#include "trireme/data/show.h"
#include "trireme/model/tensor_names.h"
#include "trireme/observe/work_bar.h"
#include "trireme/optim/lr_schedule.h"
#include "trireme/train/answers.h"
#include "trireme/train/best_checkpoint.h"
#include "trireme/train/frozen_reference.h"
#include "trireme/train/generate.h"
#include "trireme/train/measures.h"
#include "trireme/train/references.h"
#include "trireme/train/run_data.h"
#include "trireme/train/sampler_correction.h"
#include "trireme/train/setup.h"
#include "trireme/train/texts_apart.h"
#include "trireme/train/trained_template.h"
#include "trireme/train/whole_weights.h"
#include "trireme/train/without_dropout.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kHeldOutKey = 0x68656C64;  // draws for evaluation
constexpr int64_t kAnswerRowTokens = 1024;  // of a row with several answers
constexpr size_t kShownBytes = 120;
constexpr std::string_view kPrompts = "grpo.prompts", kValPrompts = "grpo.val_prompts";

std::string file_of(const std::optional<std::string>& prompts) {
  if (!prompts) throw UsageError("no prompts are named; give --grpo.prompts FILE.jsonl");
  return *prompts;
}

// Sums over answers.
struct Tally {
  double answers = 0, judged = 0, reward = 0, mean = 0, squares = 0, tokens = 0, truncated = 0, nats = 0;
  double groups = 0, without_spread = 0, failed = 0;
  std::vector<double> parts, part_counts;

  void add(const RolloutGroup& group) {
    groups += 1;
    without_spread += group.has_spread ? 0 : 1;
    failed += group.failure.empty() ? 0 : 1;
    for (const RolloutAnswer& a : group.answers) {
      answers += 1;
      tokens += double(a.tokens.size());
      truncated += a.is_truncated ? 1 : 0;
      for (const double logp : a.logprobs) nats -= logp;
      parts.resize(a.parts.size()), part_counts.resize(a.parts.size());
      for (size_t i = 0; i < a.parts.size(); ++i)
        if (!std::isnan(a.parts[i])) parts[i] += a.parts[i], part_counts[i] += 1;
      if (!a.reward) continue;
      judged += 1;
      reward += *a.reward;
      const double off = *a.reward - mean;  // Welford's sums, for rewards far from zero
      mean += off / judged;
      squares += off * (*a.reward - mean);
    }
  }
  // kLeftOut: there is none.
  double mean_reward() const { return judged > 0 ? reward / judged : kLeftOut; }
  double deviation() const { return judged > 0 ? std::sqrt(squares / judged) : kLeftOut; }
  double part(size_t i) const { return i < parts.size() && part_counts[i] > 0 ? parts[i] / part_counts[i] : kLeftOut; }
  std::string text_of_failures(const std::string& first) const {
    return fmt::format("{} of {} have no reward and are left out; {}", failed,
                       base::plural(static_cast<int64_t>(groups), "group"), first);
  }
};

// Adds a number that there is.
void add_measure(std::vector<base::Measured>& to, std::string name, double value) {
  if (!std::isnan(value)) to.push_back({std::move(name), value});
}

uint64_t hash_of_file(const fs::path& file) { return base::hash_text(base::read_file(file)); }

// Every rank must call.
PromptSet load_prompts(Session& s, std::string_view setting, const std::string& file,
                       const text::Tokenizer& tokenizer) {
  return checkpoint::made_on_all(s.world(), [&] { return read_prompt_set(s.settings, setting, file, tokenizer); });
}

class Grpo : public Task {
 public:
  Grpo(Session& session, std::unique_ptr<text::Tokenizer> tokenizer)
      : s_(session),
        g_(session.settings.grpo),
        tokenizer_(std::move(tokenizer)),
        rewards_(checkpoint::made_on_all(s_.world(), [&] { return rewards::make_rewards(s_.settings.reward); })),
        questions_(load_prompts(s_, kPrompts, file_of(g_.prompts), *tokenizer_)),
        writer_(s_, *tokenizer_, rewards_),
        schedule_(lr_schedule(s_.settings, Grpo::num_steps())) {
    memory_ = memory_by_phase(s_.engine->plan());
    if (g_.val_prompts) held_out_ = load_prompts(s_, kValPrompts, *g_.val_prompts, *tokenizer_);
    require_same_data(s_, identity(), std::ssize(held_out_.all), g_.val_prompts ? hash_of_file(*g_.val_prompts) : 0);
    if (g_.beta > 0) reference_.emplace(s_).load();
  }

  std::string restore(RunState& state) override {
    const std::string changed = meet_data(s_.settings.data, identity(), state);
    keep_tokenizer(s_, state);
    keep_template(s_, questions_.chat_template, state);
    if (g_.beta > 0) keep_reference(s_, state);
    if (!state.task.empty() && changed.empty()) {
      Rollout rollout = parse_rollout(state.task, "the checkpoint");
      if (rollout.made_with == made_with(s_.settings)) {
        rollout.corrections = set_corrections(g_, rollout.groups);
        set_rollout(std::move(rollout));
      } else if (s_.is_first_rank()) {
        base::info(
            "the checkpoint's answers were made with other settings; they are left out, and new ones are written");
      }
    }
    if (!changed.empty()) state.task.clear();
    prompts_read_ = state.samples;
    set_epoch(state.step);
    return changed;
  }

  void prepare(int64_t step, const StopCheck& stops, const std::function<bool()>& gives_up) override {
    const int64_t number = (step - 1) / steps_of_rollout(g_);
    try {
      if (rollout_.number != number) set_rollout(make_rollout(number, step, gives_up));
    } catch (const StepGivenUp&) {  // on all ranks; a resumed run makes the rollout again
    }
    if (stops()) return;
    const GroupRange of_step = groups_of_step(g_, std::ssize(rollout_.groups), (step - 1) % steps_of_rollout(g_));
    tokens_ = set_weights(g_, rollout_.groups, of_step);
    rows_.emplace(s_, rollout_.groups, of_step);
  }

  void load(int64_t, int micro_batch, const engine::BatchTensors& to) override {
    const plan::StepRequest& r = s_.engine->plan().request;
    rows_->load(to, (int64_t{micro_batch} * r.num_data_ranks() + r.data_index()) * r.shape.micro_batch, true);
  }

  int64_t supervised_tokens(int64_t) const override { return tokens_; }
  std::optional<int64_t> used_rows(int64_t) const override { return rows_->num_rows(); }
  double learning_rate(int64_t step) const override { return schedule_.at(step); }

  void after_step(RunState& state) override {
    state.samples = prompts_read_ = rollout_.prompts_read;
    set_epoch(state.step);
    const bool is_used_up = (state.step % steps_of_rollout(g_)) == 0;
    if (!is_used_up && saved_.empty()) saved_ = to_json(rollout_);
    state.task = is_used_up ? "" : saved_;
  }

  int64_t num_steps() const override { return steps_of_run(s_.settings, std::ssize(questions_.all)); }
  double epoch() const override { return epoch_; }
  int64_t held_out_samples() const override { return std::ssize(held_out_.all); }

  std::string held_out_text() const override {
    if (held_out_measures_.empty()) return "held out, before training: no answer could be rewarded";
    std::string text = "held out, before training:";
    for (const base::Measured& measured : held_out_measures_)
      text += fmt::format("  {} {:.3f}", measured.name, measured.value);
    return text;
  }

  std::optional<double> evaluate(const StopCheck& stops) override {
    std::vector<int64_t> all(held_out_.all.size());
    std::iota(all.begin(), all.end(), int64_t{0});
    held_out_measures_.clear();
    judge_held_out("val_reward", all, {.samples = 1, .likeliest = true}, true);
    if (!stops() && g_.eval_samples > 0)
      judge_held_out(fmt::format("val_mean@{}", g_.eval_samples), all, {.samples = g_.eval_samples, .key = kHeldOutKey},
                     false);
    stops();
    return std::nullopt;
  }

  void add_measures(base::StepEvent& event, bool evaluated) const override {
    const std::vector<std::string> names = measure_names();
    for (size_t i = 0; i < std::min(names.size(), rollout_.measures.size()); ++i)
      add_measure(event.measures, names[i], rollout_.measures[i]);
    event.measures.insert(event.measures.end(), rollout_.corrections.begin(), rollout_.corrections.end());
    event.measures.insert(event.measures.end(), memory_.begin(), memory_.end());
    if (evaluated) event.measures.insert(event.measures.end(), held_out_measures_.begin(), held_out_measures_.end());
  }

  bool samples() const override { return true; }

  // The best and the worst answer of the newest rollout.
  std::string sample(const StopCheck&) override {
    if (!s_.is_first_rank()) return "";
    const RolloutGroup* of_best = nullptr;
    const RolloutAnswer *best = nullptr, *worst = nullptr;
    const RolloutGroup* of_worst = nullptr;
    for (const RolloutGroup& group : rollout_.groups)
      for (const RolloutAnswer& a : group.answers) {
        if (!a.reward) continue;
        if (best == nullptr || *a.reward > *best->reward) best = &a, of_best = &group;
        if (worst == nullptr || *a.reward < *worst->reward) worst = &a, of_worst = &group;
      }
    std::string lines;
    for (const auto& [what, group, answer] :
         {std::tuple{"best", of_best, best}, std::tuple{"worst", of_worst, worst}}) {
      if (answer == nullptr) continue;
      const std::string& prompt = questions_.all[static_cast<size_t>(group->prompt)].text;
      lines += fmt::format("{}{:<8} {:.3g} for {} -> {}", lines.empty() ? "" : "\n", what, *answer->reward,
                           shown(prompt), shown(writer_.text_of(*answer)));
    }
    return lines;
  }

  std::vector<std::string> introduction() const override {
    std::string about = base::plural(std::ssize(questions_.all), "prompt") + questions_.remarks(s_.settings);
    if (!held_out_.all.empty())
      about += fmt::format("; {} held out{}", held_out_.all.size(), held_out_.remarks(s_.settings));
    const std::string from = g_.rollout_quantize == base::BlockFormat::none
                                 ? ""
                                 : fmt::format(", from {}", base::traits_of(g_.rollout_quantize).name);
    std::vector<std::string> lines = {
        fmt::format("data     {}", about),
        fmt::format("rollout  {} x {} of up to {}{}, {}", base::plural(g_.batch_size, "prompt"),
                    base::plural(g_.num_generations, "answer"), base::plural(g_.max_completion_length, "token"), from,
                    steps_of_rollout(g_) == 1 ? "for a step" : fmt::format("for {} steps", steps_of_rollout(g_)))};
    std::string names;
    for (const rewards::Weighted& weighted : rewards_)
      names +=
          fmt::format("{}{}{}", names.empty() ? "" : " + ",
                      weighted.weight == 1 ? "" : fmt::format("{:g} x ", weighted.weight), weighted.reward->name());
    lines.push_back("reward   " + names);
    if (const std::string remark = remark_on_template(); !remark.empty()) lines.push_back(remark);
    if (g_.system && questions_.chat_template.empty() && held_out_.chat_template.empty())
      lines.emplace_back("grpo.system has no effect, because no prompt is a conversation");
    if (g_.chat_template && questions_.chat_template.empty() && held_out_.chat_template.empty())
      lines.emplace_back("grpo.chat_template has no effect, because no prompt is a conversation");
    if (const int64_t bytes = plan::reference_bytes(s_.engine->plan()); bytes > 0)
      lines.push_back(fmt::format("compared with {}, for which a rank takes {} beside the plan",
                                  g_.reference.value_or("the model before training"), base::human_bytes(bytes)));
    return lines;
  }
  std::string loss_unit() const override { return "a token"; }

 private:
  std::string remark_on_template() const {
    const fs::path model = s_.settings.model.name, adapter = s_.settings.lora.initial_adapter.value_or("");
    if (g_.chat_template || questions_.chat_template.empty()) return "";
    const auto known = template_of_model(model, adapter);
    return known ? known->remark(model) : "";
  }

  data::DataIdentity identity() const {
    return data::DataIdentity({{"prompts", base::checksum_text(hash_of_file(*g_.prompts))}});
  }

  static std::string shown(const std::string& text) {
    return data::visible(text.size() <= kShownBytes ? text : text.substr(0, kShownBytes) + "...");
  }

  std::vector<std::string> measure_names() const {
    std::vector<std::string> names = {"reward",     "reward_std",          "completion_length", "truncated",
                                      "entropy",    "without_spread",      "failed_groups",     "resampled",
                                      "sampling_s", "sampled_tokens_per_s"};
    for (const rewards::Weighted& weighted : rewards_) names.push_back("rewards/" + weighted.reward->name());
    names.emplace_back("judging_s");
    return names;
  }

  void set_epoch(int64_t step) {
    const int64_t steps = steps_of_rollout(g_), prompts = std::ssize(questions_.all);
    const bool is_learned_from = rollout_.number >= 0 && rollout_.number == (step - 1) / steps;
    epoch_ = is_learned_from ? passes(g_, rollout_, (step - 1) % steps + 1, prompts)
                             : double(prompts_read_) / double(prompts);
  }

  void set_rollout(Rollout rollout) {
    rollout_ = std::move(rollout);
    saved_.clear();
  }

  // The numbers of the next prompts; each pass over the file has an order of its own.
  std::vector<int64_t> next_prompts(int64_t first) const {
    const auto size = std::ssize(questions_.all);
    std::vector<int64_t> numbers;
    for (int64_t i = first; i < first + g_.batch_size; ++i)
      numbers.push_back(data::Permutation(
          size, base::mix_key(static_cast<uint64_t>(s_.settings.seed), static_cast<uint64_t>(i / size)))(i % size));
    return numbers;
  }

  Rollout make_rollout(int64_t number, int64_t step, const std::function<bool()>& gives_up) {
    writer_.begin_rollout();
    Rollout rollout{.number = number,
                    .prompts_read = prompts_read_,
                    .prompts_before = prompts_read_,
                    .made_with = made_with(s_.settings)};
    Tally tally;
    std::string failure;  // the first one
    double batches = 0;
    const bool refills = g_.dynamic_sampling == DynamicSampling::refill;
    while (std::ssize(rollout.groups) < g_.batch_size &&
           (batches == 0 || (refills && batches < double(g_.max_resampling)))) {
      std::vector<RolloutGroup> groups = writer_.write(questions_.all, next_prompts(rollout.prompts_read),
                                                       {.samples = g_.num_generations,
                                                        .key = static_cast<uint64_t>(rollout.prompts_read),
                                                        .of_rollout = true,
                                                        .gives_up = gives_up},
                                                       step);
      rollout.prompts_read += g_.batch_size;
      batches += 1;
      set_advantages(g_, groups);
      for (RolloutGroup& group : groups) {
        tally.add(group);
        if ((!refills || group.has_spread) && std::ssize(rollout.groups) < g_.batch_size)
          rollout.groups.push_back(std::move(group));
      }
      if (tally.judged == 0)
        throw Error(
            fmt::format("no answer of step {} could be rewarded: {}", step, failure_of(rollout.groups, groups)));
      if (tally.failed > 0 && failure.empty()) failure = failure_of(rollout.groups, groups);
    }
    if (!failure.empty() && s_.is_first_rank()) base::warn("step {}: {}", step, tally.text_of_failures(failure));
    if (refills) set_advantages(g_, rollout.groups);  // the batch's deviation is that of what is left
    if (g_.correction() != SamplerCorrection::none)
      for (RolloutGroup& group : rollout.groups)
        for (RolloutAnswer& answer : group.answers) answer.sampled = answer.logprobs;
    if (g_.scores_answers()) score_answers(s_, rollout.groups, &RolloutAnswer::logprobs);
    rollout.corrections = set_corrections(g_, rollout.groups);
    if (reference_) reference_->score(rollout.groups);
    const AnswerWriter::Seconds& seconds = writer_.seconds();
    const auto each = [](double sum, double count) { return count > 0 ? sum / count : 0; };
    rollout.measures = {tally.mean_reward(),
                        tally.deviation(),
                        each(tally.tokens, tally.answers),
                        each(tally.truncated, tally.answers),
                        each(tally.nats, tally.tokens),
                        each(tally.without_spread, tally.groups),
                        tally.failed,
                        batches - 1,
                        seconds.writing,
                        each(tally.tokens, seconds.writing)};
    for (size_t i = 0; i < rewards_.size(); ++i) rollout.measures.push_back(tally.part(i));
    rollout.measures.push_back(seconds.judging);
    return rollout;
  }

  static std::string failure_of(const std::vector<RolloutGroup>& kept, const std::vector<RolloutGroup>& groups) {
    for (const auto* some : {&kept, &groups})
      for (const RolloutGroup& group : *some)
        if (!group.failure.empty()) return group.failure;
    return "a reward left every answer out";
  }

  void judge_held_out(const std::string& name, const std::vector<int64_t>& all, const Drawing& drawing, bool by_part) {
    const std::vector<RolloutGroup> groups = writer_.write(held_out_.all, all, drawing, 0);
    Tally tally;
    for (const RolloutGroup& group : groups) tally.add(group);
    if (tally.failed > 0 && s_.is_first_rank())
      base::warn("held out, {}: {}", name, tally.text_of_failures(failure_of({}, groups)));
    add_measure(held_out_measures_, name, tally.mean_reward());
    for (size_t i = 0; by_part && i < rewards_.size(); ++i)
      add_measure(held_out_measures_, "val_rewards/" + rewards_[i].reward->name(), tally.part(i));
    if (by_part && tally.failed > 0) held_out_measures_.push_back({kHeldOutFailures, tally.failed});
  }

  Session& s_;
  const GrpoSettings& g_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::vector<rewards::Weighted> rewards_;
  PromptSet questions_, held_out_;
  AnswerWriter writer_;
  optim::LrSchedule schedule_;
  std::optional<FrozenReference> reference_;
  Rollout rollout_;
  std::string saved_;  ///< the rollout as a checkpoint has it; "": not needed yet
  std::optional<AnswerRows> rows_;
  int64_t tokens_ = 0, prompts_read_ = 0;
  double epoch_ = 0;
  std::vector<base::Measured> held_out_measures_, memory_;
};

void refuse_for_rewards(const ParsedSettings& parsed) {
  const Settings& s = parsed.settings;
  const auto refuse = [](const char* key, const char* why) {
    throw UsageError(fmt::format("{} has no meaning with task rewards: {}; leave it out", key, why));
  };
  if (parsed.typed("train.global_batch_size"))
    refuse("train.global_batch_size", "the rows of a step follow from grpo.mini_batch_size and grpo.num_generations");
  for (const char* key :
       {"data", "data.train_data_path", "data.json_path", "data.packing", "data.mixture", "data.format"})
    if (parsed.typed(key)) refuse(key, "the model writes what it learns from; prompts are in grpo.prompts");
  if (parsed.typed("data.chat_template")) refuse("data.chat_template", "that of prompts is grpo.chat_template");
  for (const char* key : {"data.learn", "data.long_conversations", "data.text_field", "data.append_eos",
                          "data.reset_attention_mask", "data.reset_position_ids"})
    if (parsed.typed(key)) refuse(key, "answers are learned as they are written");
  for (const char* key : {"data.val_data_path", "data.val_split_fraction", "data.val_split"})
    if (parsed.typed(key)) refuse(key, "held-out prompts are in grpo.val_prompts");
  if (parsed.typed("data.seed")) refuse("data.seed", "the order of prompts follows from seed");
  if (parsed.typed("data.ledger") && s.data.ledger)
    refuse("data.ledger", "micro-batches are made of answers, not of data");
  if (parsed.typed("eval.max_iters")) refuse("eval.max_iters", "each evaluation answers all of grpo.val_prompts");
  for (const auto& path : {s.grpo.prompts, s.grpo.val_prompts})
    if (path) base::refuse_folder(*path, "name the file of prompts in it");
  if (s.eval.max_new_tokens) refuse("eval.max_new_tokens", "each evaluation answers grpo.val_prompts");
  if (s.train.max_tokens) refuse("train.max_tokens", "how many tokens are written is not known before");
  if (s.objective != model::ObjectiveSettings{})
    refuse("objective.*", "it is added to cross-entropy, and grpo.* says what is learned");
  if (s.grpo.rollout_quantize != base::BlockFormat::none) {
    const model::ModelConfig config = model::config_of(s.model);
    if (config.quantized != base::BlockFormat::none)
      throw UsageError(
          "grpo.rollout_quantize: the model's matrices are kept in blocks already, and answers are written from these; "
          "leave it out");
    check_mergeable(config, adapt::adapters_of(s.lora, config),
                    "grpo.rollout_quantize lets merged weights write answers");
    if (model::tensor_names(config.architecture).block.in_out)
      throw UsageError(fmt::format(
          "grpo.rollout_quantize: models of type {} store their matrices transposed, which is not built for blocks; "
          "leave it out",
          model::model_type(config.architecture)));
  }
  if (s.accelerator == engine::Accelerator::cuda)
    throw ProcessorsOnly("learning from rewards computes on processors only", "set accelerator cpu");
}

// The next multiple.
int64_t in_steps(int64_t count, int64_t step) { return (count + step - 1) / step * step; }

}  // namespace

void complete_grpo(ParsedSettings& parsed) {
  Settings& s = parsed.settings;
  if (s.task != Learning::rewards || s.model.name.empty()) return;
  refuse_for_rewards(parsed);
  keep_texts_apart(parsed, "answers in a row are kept apart");
  const int64_t cp = s.mesh.cp.value_or(1);
  leave_out_dropout(parsed, "makes the model that learns another one than the model that answers");
  const model::ModelConfig config = model::config_of(s.model);
  const int64_t longest = config.longest_sequence();
  // The default of prompts gives way to a small model or a long answer.
  const int64_t room = std::min(config.longest_generation(), s.train.max_seq_length.value_or(longest)) -
                       s.grpo.max_completion_length + 1;
  if (parsed.provenance.at("grpo.max_prompt_length").kind == config::Source::Kind::built_in && room >= 1)
    s.grpo.max_prompt_length = std::min(s.grpo.max_prompt_length, room);
  const int64_t places = most_places(s.grpo);
  if (!s.train.max_seq_length)
    s.train.max_seq_length =
        std::min(longest, places <= kDocumentStep ? in_steps(places, std::lcm(2, cp))
                                                  : std::max(kAnswerRowTokens, in_steps(places, kDocumentStep)));
  // A longer text would be trained with other frequencies than it is written with.
  const bool fits = places <= config.longest_generation();
  if (!fits || places > *s.train.max_seq_length)
    throw UsageError(fmt::format(
        "a prompt of grpo.max_prompt_length {} with an answer of grpo.max_completion_length {} needs {} tokens, and "
        "{}; allow shorter ones",
        s.grpo.max_prompt_length, s.grpo.max_completion_length, places,
        fits ? fmt::format("train.max_seq_length allows {}", *s.train.max_seq_length) : config.generation_positions()));
  set_rows(s);
}

void set_rows(Settings& s) {
  const int64_t answers = s.grpo.mini_batch_size.value_or(s.grpo.batch_size) * s.grpo.num_generations,
                rows = rows_for(s.grpo, answers, *s.train.max_seq_length);
  s.train.micro_batch_size = std::min(s.train.micro_batch_size, rows);
  s.train.global_batch_size = in_steps(rows, s.train.micro_batch_size);
}

std::unique_ptr<Task> make_grpo(Session& session, const fs::path&, const StopCheck&) {
  return std::make_unique<Grpo>(session, load_run_tokenizer(session));
}

void check_grpo(const Settings& settings, const text::Tokenizer& tokenizer) {
  check_stop_words("grpo.stop", settings.grpo.stop);
  check_reference(settings);
  rewards::make_rewards(settings.reward);
  if (settings.grpo.val_prompts) read_prompt_set(settings, kValPrompts, *settings.grpo.val_prompts, tokenizer);
  read_prompt_set(settings, kPrompts, file_of(settings.grpo.prompts), tokenizer);
}

}  // namespace trireme::train
