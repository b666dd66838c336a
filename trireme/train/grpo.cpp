#include "trireme/train/grpo.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/mix64.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/data/permutation.h"
#include "trireme/data/show.h"
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
#include "trireme/train/trained_template.h"
#include "trireme/train/whole_weights.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kHeldOutKey = 0x68656C64;  // draws for evaluation
constexpr size_t kShownBytes = 120;
constexpr const char* kPromptsFact = "prompts";
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
        writer_(s_, *tokenizer_, rewards_) {
    memory_ = memory_by_phase(s_.engine->plan());
    if (g_.val_prompts) held_out_ = load_prompts(s_, kValPrompts, *g_.val_prompts, *tokenizer_);
    require_same_data(s_, identity(), std::ssize(held_out_.all), g_.val_prompts ? hash_of_file(*g_.val_prompts) : 0);
    if (g_.beta > 0) reference_.emplace(s_).load();
  }

  std::string restore(RunState& state) override {
    add_unsaid(state);
    const std::string changed = meet_data(s_.settings.data, identity(), state);
    keep_tokenizer(s_, state);
    keep_template(s_, questions_.chat_template, state);
    if (g_.beta > 0) keep_reference(s_, state);
    changed.empty() ? go_on(state) : begin_rollout(state, 0);
    prompts_read_ = state.samples;
    schedule_ = lr_schedule(s_.settings, Grpo::num_steps());
    set_epoch(state.step);
    return changed;
  }

  void prepare(int64_t step, const StopCheck& stops, const std::function<bool()>& gives_up) override {
    try {
      if (rollout_.place.number != place_.number) set_rollout(make_rollout(step, gives_up));
    } catch (const StepGivenUp&) {  // on all ranks; a resumed run makes the rollout again
    }
    if (stops()) return;
    const GroupRange of_step = groups_of_step(g_, std::ssize(rollout_.groups), step - 1 - place_.begins);
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
    if (state.step == place_.begins + steps_of_rollout(g_)) return begin_rollout(state, place_.number + 1);
    if (saved_.empty()) saved_ = to_json(rollout_);
    state.task = saved_;
  }

  int64_t num_steps() const override { return steps_of_run(s_.settings, std::ssize(questions_.all), place_); }
  double epoch() const override { return epoch_; }
  int64_t held_out_samples() const override { return std::ssize(held_out_.all); }

  std::string held_out_text() const override {
    if (held_out_measures_.empty()) return "held out, before training: no answer could be rewarded";
    std::string text = "held out, before training:";
    for (const base::Measured& measured : held_out_measures_)
      text += fmt::format("  {} {:.3f}", measured.name, measured.value);
    return text;
  }

  std::optional<double> evaluate(const StopCheck& stops, const std::function<bool()>& is_asked_to_stop) override {
    std::vector<int64_t> all(held_out_.all.size());
    std::iota(all.begin(), all.end(), int64_t{0});
    held_out_measures_.clear();
    try {
      judge_held_out("val_reward", all, {.samples = 1, .likeliest = true, .gives_up = is_asked_to_stop}, true);
      if (!stops() && g_.eval_samples > 0)
        judge_held_out(fmt::format("val_mean@{}", g_.eval_samples), all,
                       {.samples = g_.eval_samples, .key = kHeldOutKey, .gives_up = is_asked_to_stop}, false);
    } catch (const StepGivenUp&) {  // on all ranks, of which one was asked to stop
    }
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
    return data::DataIdentity({{kPromptsFact, base::checksum_text(hash_of_file(*g_.prompts))},
                               {"prompts that are asked", std::to_string(questions_.all.size())},
                               {"the tokenizer", fmt::format("{} (fingerprint {})", tokenizer_->name(),
                                                             base::checksum_text(tokenizer_->fingerprint()))},
                               {"seed", std::to_string(s_.settings.seed)}});
  }

  // At first checkpoints named the file of prompts alone.
  void add_unsaid(RunState& state) const {
    if (state.data.facts().size() != 1) return;
    for (const auto& [name, value] : identity().facts())
      if (name != kPromptsFact) state.data.add(name, value);
  }

  // The next step begins a rollout, before which there were `number`.
  void begin_rollout(RunState& state, int64_t number) {
    place_ = {.number = number, .begins = state.step};
    state.task =
        to_json(Rollout{.place = place_, .prompts_read = state.samples, .prompts_before = state.samples, .groups = {}});
  }

  // Takes over the checkpoint's rollout, or begins another one with its prompts.
  void go_on(RunState& state) {
    const int64_t steps = steps_of_rollout(g_);
    if (state.task.empty()) return begin_rollout(state, state.step / steps);
    Rollout rollout = parse_rollout(state.task, "the checkpoint");
    place_ = rollout.place;
    if (place_.begins == kUnknownBegin) place_.begins = rollout.place.begins = place_.number * steps;
    if (rollout.groups.empty() && rollout.prompts_read == rollout.prompts_before) return;  // of the next one
    const bool are_known = std::ranges::all_of(
        rollout.groups, [&](const RolloutGroup& group) { return group.prompt < std::ssize(questions_.all); });
    if (are_known && rollout.made_with == made_with(s_.settings)) {
      rollout.corrections = set_corrections(g_, rollout.groups);
      return set_rollout(std::move(rollout));
    }
    if (s_.is_first_rank())
      base::info("the checkpoint's answers were made with other settings; they are left out, and new ones are written");
    state.samples = rollout.prompts_before;
    begin_rollout(state, place_.number);
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
    const int64_t prompts = std::ssize(questions_.all);
    const bool is_learned_from = rollout_.place == place_ && step > place_.begins;
    epoch_ =
        is_learned_from ? passes(g_, rollout_, step - place_.begins, prompts) : double(prompts_read_) / double(prompts);
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

  Rollout make_rollout(int64_t step, const std::function<bool()>& gives_up) {
    writer_.begin_rollout();
    Rollout rollout{.place = place_,
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
  RolloutPlace place_;  ///< of the rollout that is learned from, or of the next one
  Rollout rollout_;
  std::string saved_;  ///< the rollout as a checkpoint has it; "": not needed yet
  std::optional<AnswerRows> rows_;
  int64_t tokens_ = 0, prompts_read_ = 0;
  double epoch_ = 0;
  std::vector<base::Measured> held_out_measures_, memory_;
};

}  // namespace

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
