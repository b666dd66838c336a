#include "trireme/train/run_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/adapt/adapter_folder.h"
#include "trireme/adapt/from_settings.h"
#include "trireme/adapt/merge.h"
#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/checkpoint/foreign_weights.h"
#include "trireme/checkpoint/load.h"
#include "trireme/checkpoint/quantized_tensors.h"
#include "trireme/launch/supervise/notice.h"
#include "trireme/observe/loggers.h"
#include "trireme/text/ends_of_text.h"
#include "trireme/text/load_tokenizer.h"
#include "trireme/train/classify.h"
#include "trireme/train/foresight.h"
#include "trireme/train/grpo.h"
#include "trireme/train/model_source.h"
#include "trireme/train/preferences.h"
#include "trireme/train/pretrain.h"
#include "trireme/train/same_on_ranks.h"
#include "trireme/train/sample_reply.h"
#include "trireme/train/setup.h"
#include "trireme/train/starting_point.h"
#include "trireme/train/stopping.h"

namespace trireme::train {
namespace {

// All ranks take rank 0's choice.
void agree_on_choices(data::TrainingDataOptions& options, const std::filesystem::path& resume,
                      comm::Communicator& world) {
  std::string kept;
  checkpoint::agree(world, [&] {
    if (world.rank() == 0) keep_choices(options, resume);
    if (options.split == data::Split::last) kept += "last ";
    if (options.keep_long) kept += "long ";
  });
  kept = checkpoint::broadcast_text(world, kept, 0);
  const auto is_kept = [&](const char* word) { return kept.find(word) != std::string::npos; };
  if (is_kept("last")) options.split = data::Split::last;
  options.keep_long = is_kept("long");
}

}  // namespace

void keep_choices(data::TrainingDataOptions& options, const std::filesystem::path& resume) {
  if (resume.empty()) return;
  const RunState state = parse_run_state(checkpoint::open_checkpoint(resume).state_json, resume);
  const auto& facts = state.data.facts();
  const auto has = [&](const char* name) {
    return std::ranges::count(facts, name, &data::DataIdentity::Fact::first) > 0;
  };
  if (state.step == 0 || facts.empty()) return;
  if (options.split == data::Split::automatic && !has(data::kSplitFact)) options.split = data::Split::last;
  // To drop them is no default, so who asks for it is told that the run did not.
  options.keep_long = !options.conversations.options.drop_long && !has(data::kLongFact);
}

std::unique_ptr<text::Tokenizer> load_run_tokenizer(Session& s) {
  return checkpoint::made_on_all(s.world(), [&] { return resolve_tokenizer(s.settings, s.model.config); });
}

data::TrainingData load_run_data(Session& s, const std::filesystem::path& resume, const text::Tokenizer& tokenizer,
                                 const StopCheck& stops) {
  data::TrainingDataOptions options = training_data_options(s.settings, s.sequence());
  agree_on_choices(options, resume, s.world());
  std::optional<data::TrainingData> data;
  const auto load = [&] { data = data::load_training_data(options, tokenizer); };
  checkpoint::agree(s.world(), [&] {
    if (s.is_first_rank()) load();
  });
  stops();
  checkpoint::agree(s.world(), [&] {
    if (!data) load();
  });
  require_same_data(s, *data);
  return *std::move(data);
}

void require_same_data(Session& s, const data::TrainingData& data) {
  require_same_data(s, data.identity, data.val ? data.val->num_samples() : 0, data.held_out_hash);
}

void require_same_data(Session& s, data::DataIdentity data, int64_t held_out, uint64_t held_out_hash) {
  data.add("held-out samples", std::to_string(held_out));
  if (held_out_hash != 0) data.add("held-out data", base::checksum_text(held_out_hash));
  require_same_data(s.world(), data);
}

void require_same_data(comm::Communicator& world, const data::DataIdentity& data, std::string_view what) {
  nlohmann::ordered_json facts = nlohmann::ordered_json::object();
  for (const auto& [name, value] : data.facts()) facts[name] = value;
  if (const std::optional<Unlike> unlike = find_unlike(world, base::json_text(facts)))
    throw UsageError(fmt::format("rank {} has {}; give every machine the same {}", unlike->rank,
                                 unlike->what.empty() ? fmt::format("other {} than rank 0", what) : unlike->what,
                                 what));
}

std::string meet_data(const data::DataSettings& settings, const data::DataIdentity& data, RunState& state) {
  const data::DataIdentity before = std::exchange(state.data, data);
  if (state.step == 0) return "";
  if (settings.on_change == data::OnChange::refuse) data::check_same_data(data, before);
  const std::string changes = data.changes_since(before);
  if (changes.empty()) return "";
  state.samples = 0;
  return fmt::format("order    begins at sample 0 of the new data: {}", changes);
}

std::string foresee_resume(const Settings& s, const std::filesystem::path& resume) {
  if (resume.empty()) return "";
  const RunState state = parse_run_state(checkpoint::open_checkpoint(resume).state_json, resume);
  if (s.task == Learning::rewards) {  // its samples are written by the model
    if (!s.train.max_steps || state.step < *s.train.max_steps) return "";
    return nothing_to_do(s, *s.train.max_steps, state.step, state.tokens, 0);
  }
  const int64_t sequence = sequence_length(s, model::config_of(s.model));
  if (state.step > 0 && s.data.on_change == data::OnChange::refuse) {
    data::DataIdentity known;
    if (s.task == Learning::language) {
      known.add("data.packing", std::string(config::name_of(s.data.packing)));
      known.add(data::kLongFact, std::string(config::name_of(s.data.long_conversations)));
    }
    known.add("train.max_seq_length", std::to_string(sequence));
    known.add("data.seed", std::to_string(s.data.seed));
    data::check_same_facts(known, state.data);
  }
  Settings without_epochs = s;  // which count samples of the data
  without_epochs.train.epochs.reset();
  if (!s.train.max_steps && !s.train.max_tokens) return "";
  const int64_t last =
      run_steps(without_epochs, sequence, 0, {.step = state.step, .samples = state.samples, .tokens = state.tokens});
  if (state.step < last) return "";
  return nothing_to_do(without_epochs, last, state.step, state.tokens, s.train.global_batch_size * sequence);
}

void keep_tokenizer(const Session& s, RunState& state) {
  if (!s.is_first_rank() || !s.settings.data.tokenizer) return;
  auto& files = state.source.side_files;
  if (text::has_tokenizer(s.settings.model.name))
    for (const auto& [name, bytes] : text::tokenizer_files(s.settings.model.name)) files.erase(name);
  for (auto& [name, bytes] : text::tokenizer_files(tokenizer_path(s.settings))) files[name] = std::move(bytes);
}

void stop_at(const Session& s, const text::Tokenizer& tokenizer, int32_t id, RunState& state) {
  if (s.is_first_rank())  // its texts are saved
    text::add_end_of_text(id, tokenizer, s.model.config.source_json, state.source.side_files);
}

void stop_between_texts(const Session& s, const text::Tokenizer& tokenizer, RunState& state) {
  const std::optional<int32_t> separator = text::special_separator(tokenizer);
  if (s.settings.data.append_eos && separator) stop_at(s, tokenizer, *separator, state);
}

namespace fs = std::filesystem;

namespace {

// Without this, a run would begin with new weights beside those that it was given. `else_say`: another way out.
void refuse_foreign_weights(const Settings& settings, std::string_view else_say) {
  if (settings.model.from_scratch) return;
  // A folder beside the run may have the name of a model that is known by name.
  if (!fs::exists(fs::path(settings.model.name) / "config.json") &&
      std::ranges::count(model::catalogue_names(), settings.model.name) > 0)
    return;
  if (const std::string advice = checkpoint::advice_on_foreign_weights(settings.model.name); !advice.empty())
    throw UsageError(fmt::format("{}{}", advice, else_say));
}

}  // namespace

void check_has_weights(const Settings& settings, std::string_view subcommand) {
  const bool adapts = settings.lora.r || settings.lora.initial_adapter;
  if ((!adapts && !find_resume(settings).empty()) || !starting_weights(settings).empty()) return;
  refuse_foreign_weights(settings, "");
  const char* adapter = settings.lora.r ? "lora.r" : "lora.initial_adapter";
  const bool by_key = subcommand == "pretrain";  // which trains new weights otherwise
  const std::string what = by_key ? fmt::format("{} trains an adapter on existing weights", adapter)
                                  : fmt::format("{} trains existing weights further", subcommand);
  const std::string way_out =
      by_key ? fmt::format("or leave {} out", adapter) : "or train new weights with trireme pretrain";
  throw UsageError(settings.model.from_scratch
                       ? fmt::format("{}, but model.from_scratch asks for new ones; leave it out, {}", what, way_out)
                       : fmt::format("{}, but {} has none; name a model's folder (with *.safetensors), {}", what,
                                     settings.model.name, way_out));
}

void check_pretrain(const Settings& settings) {
  check_foresight(settings);
  if (settings.train.logger_command) observe::check_program(*settings.train.logger_command);
  const model::ModelConfig model = model::config_of(settings.model);
  const auto tokenizer = resolve_tokenizer(settings, model);
  const bool classifies = settings.task == Learning::classify, compares = settings.task == Learning::preferences,
             is_rewarded = settings.task == Learning::rewards;
  data::TrainingDataOptions data;
  if (!is_rewarded) data = training_data_options(settings, sequence_length(settings, model));
  if (!classifies && !compares && !is_rewarded) data::check_training_data(data);
  const fs::path resume = find_resume(settings);
  keep_choices(data, resume);
  const fs::path weights = resume.empty() ? starting_weights(settings) : resume;
  if (weights.empty()) refuse_foreign_weights(settings, "; for new weights say --model.from_scratch true");
  Done done;
  if (!resume.empty() && !is_rewarded) {
    const RunState before = parse_run_state(checkpoint::open_checkpoint(resume).state_json, resume);
    done = {.step = before.step, .samples = before.samples, .tokens = before.tokens};
  }
  const auto check_length = [&](int64_t samples) {
    run_steps(settings, sequence_length(settings, model), samples, done);
  };
  if (!settings.train.epochs) check_length(0);
  launch::check_notice(notice_options(settings.launch));
  RunState state;
  const model::Adapters adapters = adapt::adapters_of(settings.lora, model);
  const fs::path whole = adapters.empty() ? weights : starting_weights(settings);
  if (!whole.empty()) {
    const checkpoint::Checkpoint base =
        adapters.empty() ? checkpoint::with_stored_blocks(checkpoint::open_checkpoint(whole)) : adapt::open_base(whole);
    const ModelSource source = describe_source(base, model::build_model(model, resolve_precision(settings)),
                                               {.may_lack_head = resume.empty()});
    if (settings.lora.initial_adapter) {
      const adapt::AdapterFolder adapter = adapt::open_adapter_folder(*settings.lora.initial_adapter);
      adapt::check_copies(base, adapter, adapt::fit(adapter, model), source.naming);
      adapt::check_base(base, adapter);
    }
  }
  if (!weights.empty()) state = parse_run_state(checkpoint::open_checkpoint(weights).state_json, weights);
  if (is_rewarded) {
    check_grpo(settings, *tokenizer);
    return;
  }
  // Tokenizes if nothing is cached, so that ranks find the tokens and do not wait for one that tokenizes. This comes
  // last: a refusal above leaves no file behind.
  const data::TrainingData loaded = classifies ? check_classification(settings, model, *tokenizer)
                                    : compares ? check_preferences(settings, model, *tokenizer)
                                               : data::load_training_data(data, *tokenizer);
  check_length(loaded.train->samples_per_epoch());
  if (!classifies && !compares) check_sample(settings, model, loaded, *tokenizer);
  if (!resume.empty() && state.step > 0 && settings.data.on_change == data::OnChange::refuse)
    data::check_same_data(loaded.identity, state.data);
}

}  // namespace trireme::train
