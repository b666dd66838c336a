#include "trireme/train/starting_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "trireme/adapt/adapter_folder.h"
#include "trireme/adapt/base_fingerprint.h"
#include "trireme/adapt/from_settings.h"
#include "trireme/adapt/resolve.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/checkpoint/fall_back.h"
#include "trireme/checkpoint/inspect.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/settings/parse.h"
#include "trireme/settings/take_over.h"
#include "trireme/train/out_dir.h"
#include "trireme/train/same_weights.h"

namespace trireme::train {
namespace fs = std::filesystem;

std::filesystem::path starting_weights(const Settings& settings) {
  const fs::path folder = settings.model.name;
  if (settings.model.from_scratch || !fs::is_directory(folder)) return {};
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") return folder;
  return {};
}

namespace {

/// The newest good checkpoint in `folder`. Throws if there are checkpoints of a run and none is good.
std::optional<std::filesystem::path> newest_good(const std::filesystem::path& folder,
                                                 std::vector<checkpoint::PassedOver>& passed_over) {
  const auto found = checkpoint::find_latest(folder, &passed_over);
  for (const checkpoint::PassedOver& newer : passed_over)
    if (newer.verdict.kind == checkpoint::Verdict::Kind::unreadable)
      throw UsageError(
          fmt::format("resume: {}; make it readable, or name the checkpoint to go on from with --resume "
                      "FOLDER",
                      newer.verdict.problem));
  if (found) return found;
  const auto newest = std::ranges::find_if(passed_over, [](const checkpoint::PassedOver& p) {
    return p.verdict.kind != checkpoint::Verdict::Kind::weights_alone;  // no run can go on from those
  });
  if (newest != passed_over.end())
    throw UsageError(fmt::format(
        "resume: none of the {} in {} is good; of the newest, {}: {}. To use one of them anyway, name it with --resume "
        "FOLDER; or start a new run in another --out_dir",
        base::plural(static_cast<int64_t>(passed_over.size()), "checkpoint"), folder.string(),
        newest->path.filename().string(), newest->verdict.problem));
  return std::nullopt;
}

/// Weights without a run's state would begin anew at step 0, beside or in the place of the run that is meant.
void refuse_weights_alone(const fs::path& folder) {
  if (base::is_file(folder / checkpoint::kStateName)) return;
  using Kind = checkpoint::Verdict::Kind;
  const Kind kind = checkpoint::verdict_of(folder).kind;
  if (fs::exists(folder / checkpoint::kManifestName) && (kind == Kind::damaged || kind == Kind::unreadable))
    return;  // whoever opens it says what it lacks
  const std::string quoted = base::shell_quoted(folder.string());
  if (adapt::is_adapter_folder(folder))
    throw UsageError(
        fmt::format("resume: {} holds an adapter and no state of a run; begin a new run from it: trireme finetune_lora "
                    "BASE --lora.initial_adapter {}",
                    folder.string(), quoted));
  if (checkpoint::holds_weights(folder))
    throw UsageError(
        fmt::format("resume: {} holds weights and no state of a run; begin a new run from them: trireme pretrain {}",
                    folder.string(), quoted));
}

// Samples of an evaluation, if as many are held out.
double most_evaluated(const Settings& settings) {
  if (settings.task == Learning::rewards) return std::numeric_limits<double>::infinity();
  return double(settings.eval.max_iters) * double(settings.train.micro_batch_size);
}

}  // namespace

std::filesystem::path find_resume(const Settings& settings, std::vector<checkpoint::PassedOver>* passed_over) {
  using From = train::Resume::From;
  std::vector<checkpoint::PassedOver> unheard;
  if (passed_over == nullptr) passed_over = &unheard;
  const From from = settings.resume.from;
  if (from == From::nothing) return {};
  const fs::path folder = from == From::folder ? settings.resume.folder : settings.out_dir;
  if (const auto newest = newest_good(folder, *passed_over)) return *newest;
  if (from != From::folder && !passed_over->empty()) refuse_weights_alone(passed_over->front().path);
  if (from == From::newest)
    throw UsageError(fmt::format(
        "resume is true, but {} holds no complete checkpoint; use --resume auto to start afresh when there is none",
        settings.out_dir));
  if (from == From::newest_if_any) return {};
  if (!fs::exists(folder)) throw UsageError(fmt::format("resume: there is no folder {}", folder.string()));
  if (!fs::is_directory(folder))
    throw UsageError(fmt::format("resume: {} is a file; name a run's out_dir, or a checkpoint in it", folder.string()));
  refuse_weights_alone(passed_over->empty() ? folder : passed_over->front().path);
  return folder;
}

StartingPoint::StartingPoint(Session& session) : s_(session) {
  std::string found;
  checkpoint::agree(s_.world(), [&] {
    if (s_.is_first_rank()) found = find_resume(s_.settings, &passed_over_).string();
  });
  resume_ = checkpoint::broadcast_text(s_.world(), found, 0);
  if (resume_.empty() || !s_.model.adapters.empty()) require_same_weights();
}

// What is read of the folders that the settings name. A checkpoint that is resumed lies where all ranks see it.
void StartingPoint::require_same_weights() {
  weights_ = starting_weights(s_.settings);
  require_same_folder(s_.world(), s_.environment, "the model's weights",
                      [&] { return weights_.empty() ? "" : adapt::fingerprint_of(adapt::open_base(weights_)); });
  const auto& adapter = s_.settings.lora.initial_adapter;
  if (adapter && resume_.empty())
    require_same_folder(s_.world(), s_.environment, "lora.initial_adapter",
                        [&] { return fingerprint_of(adapt::open_adapter_folder(*adapter)); });
}

bool StartingPoint::is_measured_anew(const std::string& moved, int64_t held_out_samples) const {
  constexpr std::string_view kMeasures[] = {
      "data.",           "objective.",           "dpo.",         "grpo.val_",  "grpo.eval_", "grpo.max_",
      "grpo.overlong_",  "grpo.chat_template ",  "grpo.system ", "grpo.stop ", "reward.",    "free.kl_weight ",
      "free.free_bits ", "train.max_seq_length "};
  // The same data may lie elsewhere; other data are in `moved`.
  constexpr std::string_view kPlaces[] = {"data.train_data_path ", "data.json_path ", "data.mixture ",
                                          "data.tokenizer ", "dpo.reference "};
  const auto begins = [](const std::string& change) {
    return [&](std::string_view key) { return change.starts_with(key); };
  };
  const auto measures = [&](const std::string& change) {
    return std::ranges::any_of(kMeasures, begins(change)) && std::ranges::none_of(kPlaces, begins(change));
  };
  const bool holds_out_of_them = !s_.settings.data.val_data_path && !s_.settings.grpo.val_prompts;
  const auto evaluated = [&](double most) { return std::min(most, double(held_out_samples)); };
  return (!moved.empty() && holds_out_of_them) || std::ranges::any_of(changed_, measures) ||
         (most_evaluated_ > 0 && evaluated(most_evaluated_) != evaluated(most_evaluated(s_.settings)));
}

bool StartingPoint::has_other_precision() const {
  return std::ranges::any_of(changed_, [](const std::string& change) { return change.starts_with("precision"); });
}

// If the user named a checkpoint, no other one is taken. A restart has found and named its checkpoint itself.
std::optional<fs::path> StartingPoint::older(const fs::path& damaged) const {
  const train::Resume& resume = s_.settings.resume;
  if (resume.from != train::Resume::From::folder || resume_ != fs::path(resume.folder))
    return checkpoint::find_older(damaged);
  if (s_.environment.restart_count == 0) return std::nullopt;
  return find_saved_by_this_run(s_.settings.out_dir, s_.environment, damaged);
}

RunState StartingPoint::load() {
  RunState state;
  const bool adapts = !s_.model.adapters.empty();
  if (adapts) state = load_base();
  ModelSource source = std::move(state.source);
  if (!resume_.empty()) {
    const auto from = [&](const fs::path& folder) {
      state = load_run(*s_.engine, s_.model, folder, s_.world(), LoadWhat::run,
                       std::string(config::name_of(s_.settings.optimizer.name)));
    };
    const auto next = [this](const fs::path& damaged) { return older(damaged); };
    resume_ = checkpoint::load_or_older(resume_, s_.world(), next, passed_over_, from);
    changed_ = changes_since(state.settings_yaml, s_.settings);
    if (!state.settings_yaml.empty()) most_evaluated_ = most_evaluated(settings_in(state.settings_yaml));
  } else if (adapts && s_.settings.lora.initial_adapter) {
    const fs::path adapter = adapt::open_adapter_folder(*s_.settings.lora.initial_adapter).path;
    load_run(*s_.engine, s_.model, adapter, s_.world(), LoadWhat::weights);
  } else if (adapts) {
    // A, B and biases have their first values (load_base).
    load_magnitudes(*s_.engine, s_.model, starting_weights(s_.settings), s_.world(),
                    static_cast<uint64_t>(s_.settings.seed));
  } else if (!weights_.empty()) {
    if (s_.model.config.is_classifier())  // a new head
      s_.engine->initialize(static_cast<uint64_t>(s_.settings.seed));
    state = load_run(*s_.engine, s_.model, weights_, s_.world(), LoadWhat::weights);
  } else {
    s_.engine->initialize(static_cast<uint64_t>(s_.settings.seed));
  }
  has_new_head_ = !state.source.fresh.empty();
  const fs::path& loaded = resume_.empty() ? weights_ : resume_;
  unverified_ = !loaded.empty() && !fs::exists(loaded / checkpoint::kManifestName);
  step_ = state.step;
  s_.skipped_before = state.loss_scale.skipped;
  if (s_.loss_scale) s_.loss_scale->restore(state.loss_scale);
  if (adapts) {
    state.source = std::move(source);
    adapt::AdapterConfig config = *adapt::adapter_config(s_.settings.lora, s_.model.config);
    state.base_path = fs::absolute(s_.settings.model.name).lexically_normal().string();
    config.base_model_name_or_path = state.base_path;
    checkpoint::agree(s_.world(), [&] {
      if (s_.is_first_rank())
        state.base_fingerprint = adapt::fingerprint_of(adapt::open_base(starting_weights(s_.settings)));
      if (s_.settings.checkpoint.base == checkpoint::BaseIn::copy &&
          adapt::open_base(starting_weights(s_.settings)).quantized != nullptr)
        throw UsageError(
            fmt::format("checkpoint.base copy: {} holds matrices in blocks, whose copy is not built; leave "
                        "it out",
                        starting_weights(s_.settings).string()));
      if (s_.settings.checkpoint.base == checkpoint::BaseIn::copy)
        state.base_to_copy =
            std::make_shared<const checkpoint::Checkpoint>(adapt::open_base(starting_weights(s_.settings)));
    });
    state.adapter_config = adapt::adapter_config_json(adapt::config_for_peft(config, s_.model.config));
  }
  return state;
}

// Adapters get their first values, everything else the base model's.
RunState StartingPoint::load_base() {
  s_.engine->initialize(static_cast<uint64_t>(s_.settings.seed));
  return load_run(*s_.engine, s_.model, starting_weights(s_.settings), s_.world(), LoadWhat::base);
}

std::vector<std::string> StartingPoint::describe() const {
  std::vector<std::string> lines;
  for (const checkpoint::PassedOver& newer : passed_over_)
    lines.push_back(fmt::format("warn     passed over {}: {}", newer.path.string(), newer.verdict.problem));
  const std::string unverified = unverified_ ? "; it has no manifest, so nothing in it could be verified" : "";
  const Settings& c = s_.settings;
  if (!weights_.empty()) lines.push_back(fmt::format("weights  {}{}", weights_.string(), unverified));
  if (weights_.empty() && resume_.empty() && fs::is_directory(c.model.name))
    lines.push_back(c.model.from_scratch
                        ? fmt::format("weights  new: model.from_scratch leaves those of {} alone", c.model.name)
                        : fmt::format("weights  new: {} has none", c.model.name));
  if (has_new_head_) lines.push_back(fmt::format("head     new: {} has none for these labels", weights_.string()));
  if (!resume_.empty()) lines.push_back(fmt::format("resumed  {} at step {}{}", resume_.string(), step_, unverified));
  for (const std::string& change : changed_) lines.push_back("changed  " + change);
  return lines;
}

}  // namespace trireme::train
