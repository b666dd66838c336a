#include "trireme/train/preferences.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/not_text.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/data/named_sets.h"
#include "trireme/data/preference_data.h"
#include "trireme/train/references.h"
#include "trireme/train/run_data.h"
#include "trireme/train/sample_task.h"
#include "trireme/train/setup.h"
#include "trireme/train/texts_apart.h"
#include "trireme/train/without_dropout.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRowTokens = 1024;  // of a row, unless the user gives another length

data::PreferenceData load_pairs(const Settings& s, const model::ModelConfig& model, const text::Tokenizer& tokenizer) {
  const int64_t sequence = sequence_length(s, model);
  const int64_t most = s.dpo.max_length.value_or(sequence / 2);
  // A text of n tokens takes n - 1 places, and a row holds two.
  if (2 * (most - 1) > sequence)
    throw UsageError(
        fmt::format("two texts of dpo.max_length {} tokens do not fit into a row of train.max_seq_length "
                    "{}; take a dpo.max_length of {} or less, or rows of {} tokens",
                    most, sequence, sequence / 2 + 1, 2 * (most - 1)));
  if (most < 2) throw UsageError("a text of a pair needs two tokens or more; take a longer train.max_seq_length");
  const model::Objective objective = objective_of(s);
  const bool learns_prompts = std::ranges::any_of(objective.pairs, [](const model::WeightedPairLoss& p) {
    return model::likelihood_of(p.loss) == model::Likelihood::whole;
  });
  return data::load_preference_data(
      s.data,
      {.limits = {.most_tokens = most, .keeps_end = s.dpo.truncation_mode == model::TruncationMode::keep_end},
       .sequence = sequence,
       .learns_prompts = learns_prompts},
      tokenizer, tokenizer_path(s));
}

// How often the negative log-probability of a chosen text's token counts: of the reply, and of the prompt.
struct TokenWeights {
  double reply = 0, prompt = 0;
};

// Each likelihood is a mean over the tokens of some rows, and the loss a mean over their pairs.
class LikelihoodWeights {
 public:
  explicit LikelihoodWeights(const model::Objective& objective) : objective_(objective) {}

  void add(const data::PreferenceDataset& rows, int64_t row) {
    for (const int64_t pair : rows.row(row)) {
      const data::ReplyText& chosen = rows.pairs()[static_cast<size_t>(pair)].chosen;
      ++pairs_;
      replies_ += chosen.reply_targets();
      all_ += chosen.places();
    }
  }

  TokenWeights weights() const {
    TokenWeights w;
    for (const model::WeightedPairLoss& p : objective_.pairs) {
      const model::Likelihood of = model::likelihood_of(p.loss);
      if (of == model::Likelihood::none) continue;
      const bool whole = of == model::Likelihood::whole;
      const double each =
          p.weight * static_cast<double>(pairs_) / static_cast<double>(std::max<int64_t>(1, whole ? all_ : replies_));
      w.reply += each;
      if (whole) w.prompt += each;
    }
    return w;
  }

 private:
  const model::Objective& objective_;
  int64_t pairs_ = 0, replies_ = 0, all_ = 0;
};

class Preferences : public SampleTask {
 public:
  Preferences(Session& session, std::unique_ptr<text::Tokenizer> tokenizer, data::PreferenceData pairs,
              References references)
      : SampleTask(session, pairs.data),
        tokenizer_(std::move(tokenizer)),
        pairs_(std::move(pairs)),
        references_(std::move(references)) {
    LikelihoodWeights weights(session.model.objective);
    const int64_t most = session.settings.eval.max_iters * session.settings.train.micro_batch_size;
    for (int64_t row = 0; row < std::min(most > 0 ? most : pairs_.val->num_samples(), pairs_.val->num_samples()); ++row)
      weights.add(*pairs_.val, row);
    held_out_weights_ = weights.weights();
  }

  std::string restore(RunState& state) override {
    std::string changed = SampleTask::restore(state);
    if (data().chat_template.empty() && tokenizer_->eos_id())  // plain replies end with it
      stop_at(session(), *tokenizer_, *tokenizer_->eos_id(), state);
    if (session().model.objective.needs_reference()) keep_reference(session(), state);
    return changed;
  }

  std::vector<std::string> introduction() const override {
    std::vector<std::string> lines = {"data     " + pairs_.about};
    if (session().model.objective.needs_reference())
      lines.push_back(fmt::format("compared with {}", reference_folder(session().settings).string()));
    return lines;
  }
  std::string loss_unit() const override { return "nats a pair"; }

 private:
  void put(const engine::BatchTensors& to, const data::Batch& batch, bool held_out) override {
    session().load(to, batch);
    if (!to.targets.defined()) return;
    const TokenWeights weights = held_out ? held_out_weights_ : weights_of_step(batch);
    const data::PreferenceDataset& rows = held_out ? *pairs_.val : *pairs_.train;
    const ReferenceScores& references = held_out ? references_.val : references_.train;
    for (std::vector<double>& row : inputs_) row.assign(batch.targets.size(), 0);
    for (int64_t i = 0; i < batch.num_samples; ++i) {
      const int64_t sample = batch.first_sample + i;
      const int64_t row = held_out ? sample : data().train->draw(sample).index;
      auto at = static_cast<size_t>(i * rows.sequence());
      for (const int64_t pair : rows.row(row)) {
        const data::TokenPair& p = rows.pairs()[static_cast<size_t>(pair)];
        at = write(p.chosen, weights, of(references.chosen, pair), at);
        at = write(p.rejected, {}, of(references.rejected, pair), at);
      }
    }
    for (int row = model::PairInput::reply; row < model::PairInput::end; ++row) {
      const std::vector<double>& values = inputs_[static_cast<size_t>(row - model::PairInput::reply)];
      session().copy_local(to.targets[row], {reinterpret_cast<const int64_t*>(values.data()), values.size()});
    }
  }

  static double of(const std::vector<double>& references, int64_t pair) {
    return references.empty() ? 0 : references[static_cast<size_t>(pair)];
  }

  // What the batch says of a text's targets, from place `at` on; returns the place behind them.
  size_t write(const data::ReplyText& text, const TokenWeights& weights, double reference, size_t at) {
    auto& [reply, likelihood, references] = inputs_;
    const auto first = static_cast<size_t>(std::max<int64_t>(1, text.prompt_tokens)) - 1,
               count = static_cast<size_t>(text.places());
    for (size_t i = 0; i < count; ++i) {
      reply[at + i] = i < first ? 0 : 1;
      likelihood[at + i] = i < first ? weights.prompt : weights.reply;
    }
    references[at + first] = reference;
    return at + count;
  }

  TokenWeights weights_of_step(const data::Batch& batch) {
    const Settings& s = session().settings;
    const int64_t first = batch.first_sample - batch.micro_batch_index * s.train.micro_batch_size;
    if (first == first_of_step_) return step_weights_;
    LikelihoodWeights weights(session().model.objective);
    for (int64_t i = 0; i < s.train.global_batch_size; ++i)
      weights.add(*pairs_.train, data().train->draw(first + i).index);
    first_of_step_ = first;
    return step_weights_ = weights.weights();
  }

  std::unique_ptr<text::Tokenizer> tokenizer_;
  data::PreferenceData pairs_;
  References references_;
  TokenWeights held_out_weights_, step_weights_;
  int64_t first_of_step_ = -1;
  std::array<std::vector<double>, 3> inputs_;  ///< model::PairInput of a micro-batch
};

void refuse_for_pairs(const ParsedSettings& parsed) {
  const Settings& s = parsed.settings;
  const auto refuse = [](const char* key, const char* why) {
    throw UsageError(fmt::format("{} has no meaning with task preferences: {}; leave it out", key, why));
  };
  for (const char* key : {"data.reset_attention_mask", "data.reset_position_ids"})
    if (parsed.given(key)) refuse(key, "each reply sees its own prompt and itself");
  for (const char* key : {"data.mixture", "data.format", "data.learn", "data.long_conversations"})
    if (parsed.given(key)) refuse(key, "the data are pairs of replies");
  if (parsed.typed("data.text_field")) refuse("data.text_field", "the data are pairs of replies");
  if (parsed.typed("data.append_eos")) refuse("data.append_eos", "a reply of plain text ends with the end of text");
  const auto& path = s.data.train_data_path;
  const bool is_json = s.data.name == data::Corpus::json;  // the others look for no splits
  if (path && !(is_json && data::find_json_splits(*path)))
    base::refuse_folder(*path, is_json ? "name a file of pairs, or a folder with train.jsonl and val.jsonl"
                                       : "name a file of pairs, or take --data JSON for a folder with train.jsonl and "
                                         "val.jsonl");
  if (s.data.val_data_path) base::refuse_folder(*s.data.val_data_path, "name a file of pairs in it");
  if (s.eval.max_new_tokens) refuse("eval.max_new_tokens", "no reply is written while pairs are learned");
  if (s.data.packing == data::Packing::wrapped)
    throw UsageError(
        "data.packing wrapped cuts texts, and pairs stay whole; give --data.packing none, or best_fit for "
        "several in a row");
  if (s.objective != model::ObjectiveSettings{})
    refuse("objective.*", "it is added to cross-entropy, and dpo.loss_type names the losses of pairs");
}

}  // namespace

void complete_preferences(ParsedSettings& parsed) {
  Settings& s = parsed.settings;
  if (s.task != Learning::preferences || s.model.name.empty()) return;
  if (!parsed.given("data.packing") && s.data.packing == data::Packing::wrapped) s.data.packing = data::Packing::none;
  refuse_for_pairs(parsed);
  leave_out_dropout(parsed,
                    "makes replies differ from their reference by chance alone; pairs are learned without dropout, as "
                    "in TRL");
  const bool is_default = [&] {
    const auto found = parsed.provenance.find("optimizer.lr");
    return found != parsed.provenance.end() && found->second.kind == config::Source::Kind::command;
  }();
  if (is_default && (s.lora.r || s.lora.initial_adapter)) s.optimizer.lr = 1e-5;
  keep_texts_apart(parsed, "replies of a pair are kept apart");
  if (!s.train.max_seq_length)
    s.train.max_seq_length = std::min(kRowTokens, model::config_of(s.model).longest_sequence());
}

std::unique_ptr<Task> make_preferences(Session& session, const fs::path&, const StopCheck& stops) {
  auto tokenizer = load_run_tokenizer(session);
  data::PreferenceData pairs = checkpoint::made_on_all(
      session.world(), [&] { return load_pairs(session.settings, session.model.config, *tokenizer); });
  stops();
  require_same_data(session, pairs.data);
  References references;
  if (session.model.objective.needs_reference()) references = reference_scores(session, pairs, stops);
  return std::make_unique<Preferences>(session, std::move(tokenizer), std::move(pairs), std::move(references));
}

data::TrainingData check_preferences(const Settings& settings, const model::ModelConfig& model,
                                     const text::Tokenizer& tokenizer) {
  check_reference(settings);
  return load_pairs(settings, model, tokenizer).data;
}

}  // namespace trireme::train
