#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "trireme/adapt/from_settings.h"
#include "trireme/adapt/open_model.h"
#include "trireme/base/error.h"
#include "trireme/base/not_text.h"
#include "trireme/model/tensor_names.h"
#include "trireme/train/grpo.h"
#include "trireme/train/rollout.h"
#include "trireme/train/setup.h"
#include "trireme/train/texts_apart.h"
#include "trireme/train/whole_weights.h"
#include "trireme/train/without_dropout.h"

namespace trireme::train {
namespace {

constexpr int64_t kAnswerRowTokens = 1024;  // of a row with several answers

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

}  // namespace trireme::train
