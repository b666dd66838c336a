#include "trireme/train/resume_settings.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "trireme/adapt/adapter_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/good.h"
#include "trireme/checkpoint/load.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/config/choices.h"
#include "trireme/model/config.h"
#include "trireme/optim/optimizer.h"
#include "trireme/settings/derived.h"
#include "trireme/settings/take_over.h"
#include "trireme/text/load_tokenizer.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/setup.h"
#include "trireme/train/starting_point.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using From = train::Resume::From;

// The out_dir if `folder` is one, or a checkpoint in one.
std::optional<fs::path> run_of(const fs::path& folder) {
  if (folder.empty() || !fs::is_directory(folder)) return std::nullopt;
  if (checkpoint::find_latest(folder)) return folder;
  const fs::path named = folder.has_filename() ? folder : folder.parent_path();
  if (!named.filename().string().starts_with("step-") || !base::is_file(named / checkpoint::kStateName))
    return std::nullopt;
  return named.has_parent_path() ? named.parent_path() : fs::path(".");
}

bool has_model(const std::string& name) {
  if (name.empty()) return false;
  if (base::is_file(fs::path(name) / "config.json")) return true;
  try {
    model::catalogue_config(name);
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

// The setting that would name what a run compares its model with, if that is the model before training; null: nothing.
const char* name_of_reference(const Settings& s) {
  if (s.task == Learning::preferences && !s.dpo.reference && objective_of(s).needs_reference()) return "dpo.reference";
  return s.task == Learning::rewards && !s.grpo.reference && s.grpo.beta > 0 ? "grpo.reference" : nullptr;
}

// What a run learns is no setting that can change on the way: its folder and its numbers are those of one task.
void refuse_another_task(const RunState& state, const fs::path& folder, const Settings& now) {
  for (const std::string& change : changes_since(state.settings_yaml, now))
    if (change.starts_with("task "))
      throw UsageError(
          fmt::format("{} of the run in {}; a run keeps its task: leave it out, or begin a new run from its "
                      "weights",
                      change, folder.string()));
}

// What an optimizer keeps between steps is no other one's: that would start from zero, or misread the saved tensors.
void refuse_another_optimizer(const RunState& state, const fs::path& folder, const Settings& now) {
  const Settings before = settings_in(state.settings_yaml);
  const auto names = [](const Settings& s) { return optim::state_names(optim::options_of(s.optimizer)); };
  const auto compensates = [](const Settings& s) { return s.precision.rounding == model::Rounding::kahan; };
  const char* setting = before.optimizer.name != now.optimizer.name ? "optimizer "
                        : names(before) != names(now)               ? "optimizer.momentum "
                        : compensates(before) != compensates(now)   ? "precision.rounding "
                                                                    : nullptr;
  if (setting == nullptr) return;
  // Without kahan the rounding follows from the precision that the user gave.
  const std::string way_out =
      compensates(before) && !compensates(now) && before.precision.format != now.precision.format
          ? fmt::format("go on with precision {}", config::name_of(before.precision.format))
          : "leave it out";
  for (const std::string& change : changes_since(state.settings_yaml, now))
    if (change.starts_with(setting))
      throw UsageError(fmt::format("{}, and the optimizer would need other tensors than {} keeps; {}, or begin {}",
                                   change, folder.string(), way_out, how_to_begin_from(folder)));
}

// A saved scale goes on as it is, so the scale of the first step is not read again.
void refuse_another_first_scale(const RunState& state, const fs::path& folder, const Settings& now) {
  if (state.loss_scale.scale == 0 || !scales_loss(now) || now.precision.loss_scale) return;
  for (const std::string& change : changes_since(state.settings_yaml, now))
    if (change.starts_with("precision.initial_loss_scale "))
      throw UsageError(
          fmt::format("{}, and the run in {} goes on at the loss scale {} that it has reached; give it as it was, or "
                      "one scale for all steps with precision.loss_scale",
                      change, folder.string(), base::format_number(state.loss_scale.scale)));
}

// Steps and passes of a run that learns from rewards are counted in its rollouts, from the first one on.
void refuse_other_rollouts(const RunState& state, const ParsedSettings& parsed) {
  const Settings& s = parsed.settings;
  const auto epochs = parsed.provenance.find("train.epochs");
  const bool ends_by_epochs =
      s.train.epochs && (parsed.given("train.epochs") || (epochs != parsed.provenance.end() &&
                                                          epochs->second.kind == config::Source::Kind::checkpoint));
  if (s.task != Learning::rewards || !ends_by_epochs) return;
  for (const std::string& change : changes_since(state.settings_yaml, s))
    for (const char* key : {"grpo.batch_size ", "grpo.mini_batch_size ", "grpo.num_iterations "})
      if (change.starts_with(key))
        throw UsageError(
            fmt::format("{}, and train.epochs counts steps of one size; leave it out, or say the last "
                        "step with train.max_steps",
                        change));
}

// As in TRL, a run that begins with an adapter compares its answers with the base that has this adapter. The setting
// keeps that for the runs that go on with it: they begin with a checkpoint's adapter.
void compare_with_first_adapter(Settings& s) {
  if (!s.lora.initial_adapter || name_of_reference(s) == nullptr) return;
  (s.task == Learning::rewards ? s.grpo.reference : s.dpo.reference) =
      checkpoint::newest_or_itself(*s.lora.initial_adapter).string();
}

void use_newest_of_a_run(std::string& model) {
  if (!model.empty() && !base::is_file(fs::path(model) / "config.json"))
    model = checkpoint::newest_or_itself(model).string();
}

}  // namespace

void place_run(ParsedSettings& parsed, bool owns_out_dir) {
  Settings& s = parsed.settings;
  const bool goes_on = s.resume.from == From::newest || s.resume.from == From::newest_if_any;
  const auto refuse_both = [&s] {
    throw UsageError(
        fmt::format("overwrite removes the run in {}, and resume goes on with it: give one of the two", s.out_dir));
  };
  if (s.overwrite && goes_on) refuse_both();
  if (goes_on && parsed.given("model")) {
    const auto run = run_of(s.model.name);
    std::error_code ignored;
    const bool is_place = run && fs::equivalent(*run, s.out_dir, ignored);
    if (!run || (parsed.given("out_dir") && !is_place)) return;
    // auto begins a run of its own with the weights of another one, and goes on with that when it is given again.
    if (s.resume.from == From::newest_if_any && !is_place) return;
    s.out_dir = run->string();
    if (!fs::equivalent(*run, s.model.name, ignored)) s.resume = {.from = From::folder, .folder = s.model.name};
    s.model.name.clear();
    parsed.provenance["model"] = {};
  } else if (s.resume.from == From::folder) {
    std::error_code missing;
    auto run = run_of(s.resume.folder);
    if (!run) run = run_of(fs::canonical(s.resume.folder, missing));  // a link's end says where the run lies
    if (run && !parsed.given("out_dir")) s.out_dir = run->string();
    if (owns_out_dir && !run && !parsed.given("out_dir") &&
        base::is_file(fs::path(s.resume.folder) / checkpoint::kStateName))
      throw UsageError(
          fmt::format("{} is a checkpoint that was renamed, so nothing says where its run lies; name a folder to go on "
                      "in with --out_dir",
                      s.resume.folder));
    std::error_code ignored;
    if (run && s.overwrite && fs::equivalent(*run, s.out_dir, ignored)) refuse_both();
  }
}

void take_over_run(ParsedSettings& parsed) {
  Settings& s = parsed.settings;
  for (auto* reference : {&s.dpo.reference, &s.grpo.reference})
    if (*reference) use_newest_of_a_run(**reference);
  const fs::path folder = find_resume(s);
  if (folder.empty()) {
    use_newest_of_a_run(s.model.name);
    return compare_with_first_adapter(s);
  }
  const RunState state = parse_run_state(checkpoint::open_checkpoint(folder).state_json, folder);
  take_over(parsed, state.settings_yaml, folder.string());
  use_newest_of_a_run(s.model.name);
  refuse_another_task(state, folder, s);
  refuse_another_optimizer(state, folder, s);
  refuse_another_first_scale(state, folder, s);
  refuse_other_rollouts(state, parsed);
  if (base::is_file(folder / adapt::kAdapterConfigName)) {
    s.lora.initial_adapter = folder.string();
    for (const std::string& change : changes_since(state.settings_yaml, s))
      if (change.starts_with("quantize "))
        throw UsageError(
            fmt::format("{}; an adapter keeps the base that it learned on when its run is resumed: leave it out, or "
                        "begin a new run with --lora.initial_adapter {}",
                        change, folder.string()));
      else if (change.starts_with("lora.") && !change.starts_with("lora.plus_ratio"))
        throw UsageError(
            fmt::format("{}; an adapter keeps its configuration when its run is resumed: leave the setting "
                        "out, or start a new run",
                        change));
    // A relative path counts from the folder in which the run began; the adapter has the whole one.
    if (!parsed.given("model") && starting_weights(s).empty()) {
      const fs::path base = adapt::open_adapter_folder(folder).base_path;
      if (adapt::holds_base(folder))
        s.model.name = folder.string();
      else if (base.is_absolute() && fs::is_directory(base))
        s.model.name = base.string();
    }
    if (starting_weights(s).empty())
      throw UsageError(
          fmt::format("the base model {} of the adapter in {} is not there: name the folder that it is in "
                      "now, before --resume",
                      s.model.name, folder.string()));
    return;
  }
  if (s.lora.r || s.lora.initial_adapter)
    throw UsageError(fmt::format(
        "{} trains all weights, and {} asks for adapters; leave it out, or begin a new run from the "
        "weights: trireme finetune_lora {}",
        folder.string(), s.lora.r ? "lora.r" : "lora.initial_adapter", base::shell_quoted(folder.string())));
  if (!parsed.given("model") && !has_model(s.model.name)) {
    if (name_of_reference(s) != nullptr && !s.model.name.empty())
      throw UsageError(
          fmt::format("the model {} is not there, and the run in {} compares what it learns with it: name the folder "
                      "that it is in now, before --resume{}",
                      s.model.name, folder.string(),
                      // Answers of a rollout were made with a reference of this name.
                      s.task == Learning::preferences ? " or with --dpo.reference" : ""));
    s.model = {.name = folder.string(),  // its config.json has the shape, and not every rate
               .attention_dropout = s.model.attention_dropout,
               .residual_dropout = s.model.residual_dropout,
               .mlp_dropout = s.model.mlp_dropout,
               .embedding_dropout = s.model.embedding_dropout};
  }
  if (const auto& tokenizer = s.data.tokenizer; tokenizer && *tokenizer != "byte" && !parsed.given("data.tokenizer") &&
                                                !fs::exists(*tokenizer) && text::has_tokenizer(folder))
    s.data.tokenizer = folder.string();
}

std::string how_to_begin_from(const std::filesystem::path& checkpoint) {
  const std::string name = base::shell_quoted(checkpoint.string());
  return adapt::is_adapter_folder(checkpoint)
             ? fmt::format("a new run from its weights: trireme finetune_lora BASE --lora.initial_adapter {}", name)
             : fmt::format("a new run from its weights, for instance trireme pretrain {}", name);
}

std::string how_to_go_on(const Settings& settings) {
  // What machines were started with is not in the settings of one of them: their numbers, and who started them.
  if (settings.num_nodes > 1 || settings.launch.rdzv_endpoint)
    return fmt::format("the same command and --resume auto{}, on each machine where it was started",
                       settings.overwrite ? ", without --overwrite" : "");
  const int64_t ranks = settings.devices.value_or(1);
  std::string words = fmt::format("trireme pretrain --resume {}{}", base::shell_quoted(settings.out_dir),
                                  ranks > 1 ? fmt::format(" --devices {}", ranks) : "");
  std::string saved;
  try {
    if (const auto newest = checkpoint::find_latest(settings.out_dir))
      saved = parse_run_state(checkpoint::open_checkpoint(*newest).state_json, *newest).settings_yaml;
  } catch (const Error&) {  // advice is no reason to fail
  }
  // Of answers, the batch follows from other settings.
  const auto follows = [&](const std::string& key) {
    return settings.task == Learning::rewards && (key == "train.global_batch_size" || key == "train.micro_batch_size");
  };
  for (const auto& [key, value] : to_give_again(saved, settings))
    if (!follows(key)) words += fmt::format(" --{} {}", key, base::shell_quoted(value));
  return words;
}

}  // namespace trireme::train
