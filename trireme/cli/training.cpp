#include "trireme/cli/training.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "trireme/adapt/adapter_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/cli/explain.h"
#include "trireme/cli/start.h"
#include "trireme/data/from_settings.h"
#include "trireme/data/named_sets.h"
#include "trireme/data/token_set.h"
#include "trireme/data/tokenize.h"
#include "trireme/data/unread.h"
#include "trireme/model/from_settings.h"
#include "trireme/settings/derived.h"
#include "trireme/settings/unread.h"
#include "trireme/settings/validate.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/classify.h"
#include "trireme/train/foresight.h"
#include "trireme/train/grpo.h"
#include "trireme/train/out_dir.h"
#include "trireme/train/preferences.h"
#include "trireme/train/pretrain.h"
#include "trireme/train/references.h"
#include "trireme/train/run_data.h"
#include "trireme/train/setup.h"
#include "trireme/train/starting_point.h"
#include "trireme/train/texts_apart.h"

namespace trireme::cli {
namespace {

using Values = std::vector<std::pair<std::string, std::string>>;

struct Training {
  std::string_view name;
  bool needs_weights = false;
  std::string_view help = {};
  Values defaults = {};  ///< where they differ from the settings' own
};

// Fine-tuning has LitGPT's defaults, except for three that suit small files: a warm-up of 10 steps, a learning rate for
// trained weights, and whole conversations in rows, each of which attends to itself.
Values with_tuning(Values more) {
  Values values = {{"data", "JSON"},
                   {"data.packing", "best_fit"},
                   {"data.reset_attention_mask", "true"},
                   {"data.reset_position_ids", "true"},
                   {"train.epochs", "5"},
                   {"train.global_batch_size", "16"},
                   {"train.micro_batch_size", "1"},
                   {"train.lr_warmup_steps", "10"}};
  values.insert(values.end(), more.begin(), more.end());
  return values;
}

const std::array kTrainings = {
    Training{.name = "pretrain",
             .help = "trireme pretrain MODEL --data TextFiles --data.train_data_path my_texts/ --train.max_steps 1000\n"
                     "trireme pretrain --config configs/austen.yaml --devices 2\n"
                     "trireme pretrain --resume out/pretrain --train.max_steps 2000\n\n"
                     "Trains a model to continue text: new weights for the name of a shape (llama-32m), or those of a\n"
                     "Hugging Face folder further. Checkpoints, metrics and logs go to out_dir. --devices N starts N\n"
                     "ranks. --dry_run shows mesh, batches and memory, and starts nothing.\n\n"},
    Training{.name = "finetune_full",
             .needs_weights = true,
             .help = "trireme finetune_full FOLDER --data JSON --data.json_path chat.jsonl\n\n"
                     "Trains all weights of the model in FOLDER further, on conversations. It has every setting of\n"
                     "trireme pretrain, and other defaults: 5 epochs, a global batch of 16, a micro-batch of 1, a\n"
                     "learning rate of 2e-5 after 10 steps of warm-up, whole conversations that attend only to\n"
                     "themselves, and the results in out/finetune/full.\n\n"
                     "trireme finetune_full FOLDER --task classify --data JSON --data.json_path reviews.jsonl\n\n"
                     "Trains it to say which label a text has: {\"text\": ..., \"label\": ...} in each line.\n\n",
             .defaults = with_tuning({{"out_dir", "out/finetune/full"}, {"optimizer.lr", "2e-5"}})},
    Training{.name = "finetune_lora",
             .needs_weights = true,
             .help =
                 "trireme finetune_lora FOLDER --data JSON --data.json_path chat.jsonl\n\n"
                 "Trains low-rank adapters (LoRA) on the model in FOLDER, whose own weights stay as they are. It has\n"
                 "every setting of trireme pretrain, and other defaults: adapters of rank 8 on the queries and\n"
                 "values, 5 epochs, a global batch of 16, a micro-batch of 1, a learning rate of 2e-4 after 10\n"
                 "steps of warm-up, whole conversations that attend only to themselves, and the results in\n"
                 "out/finetune/lora: PEFT folders, for trireme generate FOLDER --adapter, or trireme merge_lora.\n\n",
             .defaults = with_tuning({{"out_dir", "out/finetune/lora"}, {"optimizer.lr", "2e-4"}, {"lora.r", "8"}})},
    Training{
        .name = "finetune_dpo",
        .needs_weights = true,
        .help = "trireme finetune_dpo FOLDER --data JSON --data.json_path pairs.jsonl\n\n"
                "Trains the model in FOLDER on pairs of replies, so that it prefers those that people chose:\n"
                "{\"prompt\": ..., \"chosen\": ..., \"rejected\": ...} in each line. The losses have TRL's names\n"
                "(dpo.loss_type). With lora.r it trains adapters. It has every setting of trireme pretrain, and other\n"
                "defaults: 3 epochs, a global batch of 16 rows of one pair each, a learning rate of 1e-6 (1e-5 with\n"
                "adapters) after 10 steps of warm-up, and the results in out/finetune/dpo.\n\n",
        .defaults = with_tuning({{"task", "preferences"},
                                 {"out_dir", "out/finetune/dpo"},
                                 {"optimizer.lr", "1e-6"},
                                 {"data.packing", "none"},
                                 {"train.epochs", "3"}})},
    Training{.name = "grpo",
             .needs_weights = true,
             .help =
                 "trireme grpo FOLDER --grpo.prompts train.jsonl --reward.functions exact\n\n"
                 "Trains the model in FOLDER on its own answers to prompts, {\"prompt\": ..., \"answer\": ...} in\n"
                 "each line, so that it writes those that are rewarded (GRPO and its kin). Rewards are functions by\n"
                 "name, or a program (reward.command). With lora.r it trains adapters. It has every setting of\n"
                 "trireme pretrain, and other defaults: one epoch, a learning rate of 1e-6 after 10 steps of\n"
                 "warm-up, and the results in out/grpo.\n\n",
             .defaults = {{"task", "rewards"},
                          {"out_dir", "out/grpo"},
                          {"optimizer.lr", "1e-6"},
                          {"save.keep_best", "true"},
                          {"train.epochs", "1"},
                          {"train.lr_warmup_steps", "10"}}},
};

const Training* find(std::string_view subcommand) {
  const auto found = std::ranges::find(kTrainings, subcommand, &Training::name);
  return found == kTrainings.end() ? nullptr : &*found;
}

// A length that the user gives replaces the command's own.
void replace_default_length(ParsedSettings& parsed) {
  const auto given = [&](const char* key) { return parsed.given(key); };
  const bool is_default = parsed.provenance.at("train.epochs").kind == config::Source::Kind::command;
  if (is_default && (given("train.max_steps") || given("train.max_tokens") || given("train.max_time")))
    parsed.settings.train.epochs.reset();
}

bool is_resumed(const ParsedSettings& parsed) {
  return std::ranges::any_of(parsed.provenance,
                             [](const auto& entry) { return entry.second.kind == config::Source::Kind::checkpoint; });
}

// An adapter that training starts from has a configuration of its own.
void refuse_two_adapters(const ParsedSettings& parsed) {
  if (!parsed.settings.lora.initial_adapter || !parsed.given("lora.initial_adapter")) return;
  for (const auto& [key, source] : parsed.provenance)
    if (key.starts_with("lora.") && key != "lora.initial_adapter" && key != "lora.plus_ratio" && parsed.given(key))
      throw UsageError(fmt::format("{} is set, but the adapter in {} has a configuration of its own; leave {} out", key,
                                   *parsed.settings.lora.initial_adapter, key));
}

// A checkpoint of adapters may hold its base (checkpoint.base copy), and looks like a model then. Only the base would
// be trained. A resumed run of adapters has its own adapter.
void refuse_adapter_as_model(const ParsedSettings& parsed) {
  const Settings& s = parsed.settings;
  if (s.lora.initial_adapter || s.model.from_scratch || is_resumed(parsed) || !adapt::is_adapter_folder(s.model.name))
    return;
  const std::string itself = base::shell_quoted(s.model.name);
  throw UsageError(model::an_adapters_folder(
      s.model.name, adapt::holds_base(s.model.name)
                        ? fmt::format("--lora.initial_adapter {} trains it on", itself)
                        : fmt::format("name its base, and --lora.initial_adapter {} trains it on", itself)));
}

// Without a rank there are no adapters, and all weights would be trained.
void refuse_rules_of_no_adapters(const ParsedSettings& parsed) {
  if (parsed.settings.lora.r || parsed.settings.lora.initial_adapter || parsed.given("lora.r")) return;
  for (const auto& [key, source] : parsed.provenance)
    if (key.starts_with("lora.") && key != "lora.initial_adapter" && parsed.typed(key))  // that one is typed as none
      throw UsageError(
          fmt::format("{} is set, but this run has no adapters; give lora.r, as in --lora.r 8, or leave it out", key));
}

void refuse_words_of_another_task(const ParsedSettings& parsed) {
  using train::Learning;
  constexpr std::tuple<std::string_view, Learning, std::string_view> kOwners[] = {
      {"dpo.", Learning::preferences, "finetune_dpo"},
      {"grpo.", Learning::rewards, "grpo"},
      {"reward.", Learning::rewards, "grpo"}};
  const Learning task = parsed.settings.task;
  for (const auto& [key, source] : parsed.provenance)
    for (const auto& [prefix, reads_it, command] : kOwners)
      if (parsed.typed(key) && key.starts_with(prefix) && task != reads_it)
        throw UsageError(
            fmt::format("{0} is read with task {1} alone (trireme {2}), and this run has task {3}; set task {1}, or "
                        "leave {0} out",
                        key, config::name_of(reads_it), command, config::name_of(task)));
}

// The task that a command is for. finetune_full has two: it classifies if that is asked for.
std::string_view task_of(const Training& training, const Settings& settings) {
  if (training.name == "finetune_full" && settings.task == train::Learning::classify) return "classify";
  for (const auto& [key, value] : training.defaults)
    if (key == "task") return value;
  return config::name_of(train::Learning::language);
}

// A resumed run has its checkpoint's settings, so it would not do what another command is for. The command that began
// the run may say more: a restart repeats it, and --resume auto goes on with it.
void refuse_run_of_another_command(const Training& training, const ParsedSettings& parsed) {
  if (training.name == "pretrain" || !is_resumed(parsed)) return;
  const Settings& s = parsed.settings;
  const auto refuse = [&](const std::string& what_it_does, const std::string& what_is_asked) {
    const std::string& run = s.resume.from == train::Resume::From::folder ? s.resume.folder : s.out_dir;
    throw UsageError(
        fmt::format("{} {}, and trireme {} {}; go on with that run: trireme pretrain --resume {}; or begin a new run "
                    "from its weights",
                    run, what_it_does, training.name, what_is_asked, base::shell_quoted(run)));
  };
  const std::string_view task = config::name_of(s.task), asked = task_of(training, s);
  if (task != asked && !parsed.given("task"))
    refuse(fmt::format("is a run of task {}", task), fmt::format("is for task {}", asked));
  const bool adapts = s.lora.r || s.lora.initial_adapter;
  if (parsed.given("lora.r") || parsed.given("lora.initial_adapter")) return;
  if (training.name == "finetune_full" && adapts) refuse("trains adapters", "trains all weights");
  if (training.name == "finetune_lora" && !adapts) refuse("trains all weights", "trains adapters");
}

// Nothing is drawn from the data where a file beside them, by its name, is held out.
void refuse_share_beside_a_file(const ParsedSettings& parsed, const std::filesystem::path& held_out) {
  if (held_out.empty() || parsed.settings.data.val_data_path || !parsed.typed("data.val_split_fraction")) return;
  throw UsageError(
      fmt::format("data.val_split_fraction has no effect: {} is what is held out; leave it out, or name the file to "
                  "draw from with --data.train_data_path",
                  held_out.string()));
}

// Whoever types that a token ends each document expects one.
void refuse_end_of_text(const Settings& s) {
  std::string lacks;
  try {
    lacks = data::lacks_separator(*train::resolve_tokenizer(s, model::config_of(s.model)));
  } catch (const UsageError&) {
    return;  // who reads it says so
  }
  if (!lacks.empty())
    throw UsageError(fmt::format("data.append_eos true: {}; leave it out, or name a tokenizer that has one", lacks));
}

// Data that are on this machine show which settings they have no use for.
void look_at_data(const ParsedSettings& parsed) {
  const Settings& s = parsed.settings;
  const launch::RankEnvironment environment = launch::rank_environment();
  if (environment.launcher == "trireme") return;  // which has looked
  if (s.task == train::Learning::rewards || s.dry_run || s.launch.print || s.launch.hosts || s.launch.hostfile) return;
  std::vector<std::filesystem::path> paths;
  std::filesystem::path held_out;
  try {
    for (const data::DataSource& source : data::sources_of(s.data)) paths.push_back(source.path);
    held_out = data::training_data_options(s.data).val_data_path;
  } catch (const UsageError&) {
    return;  // who reads them says so
  }
  refuse_share_beside_a_file(parsed, held_out);
  if (s.task != train::Learning::language) return;
  if (parsed.typed("data.append_eos") && s.data.append_eos) refuse_end_of_text(s);
  for (const std::filesystem::path& path : paths)
    if (const std::string told = data::splits_learned_alike(path); !told.empty() && environment.global_rank <= 0)
      base::warn("{}", told);
  if (s.data.val_data_path) paths.emplace_back(*s.data.val_data_path);
  const bool has_set = std::ranges::any_of(paths, data::TokenSet::is_named_by);
  data::refuse_unread(paths, train::conversation_source(s), [&](const std::string& key) {
    // A set's long conversations are cut when they are packed; a sample reply looks for what is learned.
    if (has_set && key == "data.long_conversations" && s.data.packing != data::Packing::wrapped) return false;
    if (has_set && key == "data.learn" && s.eval.max_new_tokens) return false;
    return parsed.typed(key);
  });
}

// What the start would refuse in the places of this machine. Ranks on other hosts see others.
void check_places(const Settings& settings) {
  if (settings.launch.print || settings.launch.hosts || settings.launch.hostfile) return;
  validate_places(settings);
  validate_out_dir(settings.out_dir);
  train::refuse_models_folder(settings.out_dir);
  train::refuse_folder_of_data(settings);
  train::refuse_another_runs_folder(settings);
  train::check_offload_disk(settings);
  train::check_reference(settings);
}

// What a run would be, without its weights and data.
void show_plan(const Settings& settings) {
  at::set_num_threads(train::threads_of_a_rank(settings));  // attention's scratch is planned for each
  check_places(settings);
  const model::ModelConfig config = model::config_of(settings.model);
  const int64_t ranks = world_size(settings);
  train::check_model(settings, config);
  std::string predicted;
  const std::filesystem::path resumed = train::find_resume(settings);
  const std::string done = train::foresee_resume(settings, resumed);
  if (settings.predict || !resumed.empty()) {
    const Explained explained = plan_of(settings, /*rank=*/0);
    if (!resumed.empty())
      train::check_run(explained.plan, resumed, std::string(config::name_of(settings.optimizer.name)));
    if (settings.predict && done.empty()) predicted = train::foresee(settings, *explained.model, explained.plan) + "\n";
  }
  if (!done.empty()) return fmt::print("{}\n", done);
  fmt::print("model    {}, {:.2f} M parameters\nranks    {}, {}\n", config.name, double(config.num_parameters()) / 1e6,
             ranks, config::name_of(number_format(settings)));
  if (settings.task == train::Learning::rewards)
    fmt::print("a step   {} of {} answers each, at most {} of prompt and {} of answer\n\n",
               base::plural(settings.grpo.mini_batch_size.value_or(settings.grpo.batch_size), "prompt"),
               settings.grpo.num_generations, base::plural(settings.grpo.max_prompt_length, "token"),
               base::plural(settings.grpo.max_completion_length, "token"));
  else
    fmt::print("a step   {} of {}, {} at a time on each rank\n\n",
               base::plural(settings.train.global_batch_size, "sequence"),
               base::plural(train::sequence_length(settings, config), "token"), settings.train.micro_batch_size);
  const bool reads_labels = settings.task == train::Learning::classify && !settings.model.num_labels;
  fmt::print(
      "{}\n{}{}\nNothing was started or written, and neither weights nor data were read{}. Leave dry_run out to start "
      "this run.\n",
      mesh_text(settings), memory_text(settings, /*rank=*/0), predicted, reads_labels ? ", except for labels" : "");
}

// What settings alone can show.
void check_settings(const Training& training, const Settings& settings) {
  validate_run_length(settings);
  if (training.name != "pretrain" && model::config_of(settings.model).is_free())
    throw UsageError(fmt::format(
        "{} is not built for a Free Transformer; go on with its training: trireme pretrain FOLDER", training.name));
}

// A reader of the output that goes away (trireme pretrain ... | head) costs the output, not the training.
int run_without_reader(const Settings& settings, const launch::RankEnvironment& environment) {
  std::signal(SIGPIPE, SIG_IGN);
  return train::pretrain(settings, environment);
}

int run_training(const Training& training, Arguments arguments) {
  return start({.subcommand = std::string(training.name),
                .overlay = training_overlay(training.name),
                .help = std::string(training.help),
                .complete =
                    [&](ParsedSettings& parsed) {
                      refuse_run_of_another_command(training, parsed);
                      refuse_data_that_is_elsewhere(parsed);
                      replace_default_length(parsed);
                      complete_task(parsed);
                      look_at_data(parsed);
                    },
                .plan = train::plan_host,
                .check =
                    [&](const Settings& settings) {
                      check_settings(training, settings);
                      // A small encoder may begin with new weights; an adapter never does.
                      if ((training.needs_weights && settings.task != train::Learning::classify) || settings.lora.r ||
                          settings.lora.initial_adapter)
                        train::check_has_weights(settings, training.name);
                      train::check_pretrain(settings);
                    },
                .run = run_without_reader,
                .show_plan =
                    [&](const Settings& settings) {
                      check_settings(training, settings);
                      show_plan(settings);
                    },
                .uses_gpus = true,
                .owns_out_dir = true,
                .saves_when_stopped = true},
               arguments);
}

}  // namespace

void refuse_unread(const ParsedSettings& parsed) {
  refuse_two_adapters(parsed);
  refuse_rules_of_no_adapters(parsed);
  refuse_other_tasks(parsed);
}

// A resumed run names its data as the command did that began it, from the folder where that was typed.
void refuse_data_that_is_elsewhere(const ParsedSettings& parsed) {
  namespace fs = std::filesystem;
  const Settings& s = parsed.settings;
  if (s.dry_run || s.launch.print || s.launch.hosts || s.launch.hostfile) return;
  const auto is_taken_over = [&](const std::string& key) {
    const auto source = parsed.provenance.find(key);
    return source != parsed.provenance.end() && source->second.kind == config::Source::Kind::checkpoint;
  };
  std::vector<std::pair<std::string, std::optional<std::string>>> paths = {
      {"data.train_data_path", s.data.train_data_path},
      {"data.val_data_path", s.data.val_data_path},
      {"grpo.prompts", s.grpo.prompts}};
  if (s.data.mixture && is_taken_over("data.mixture"))
    for (const data::DataSource& source : data::sources_of(s.data))
      paths.emplace_back("data.mixture", source.path.string());
  for (const auto& [key, path] : paths) {
    std::error_code ignored;
    if (!path || path->empty() || !is_taken_over(key) || fs::exists(*path, ignored) ||
        fs::exists(*path + ".idx", ignored))  // the PREFIX of a tokenized set
      continue;
    throw UsageError(
        fmt::format("{} {} is taken over from the {}{}, and is not there: say where the data is now, --{} {}", key,
                    *path, parsed.provenance.at(key).place,
                    fs::path(*path).is_relative() ? ", relative to the folder that this starts in" : "", key,
                    key == "data.mixture" ? "'[SHARE PATH, ...]' with all of its paths" : "PATH"));
  }
}

void refuse_other_tasks(const ParsedSettings& parsed) {
  refuse_words_of_another_task(parsed);
  refuse_without_effect(parsed);
}

void complete_plan(ParsedSettings& parsed) {
  parsed.settings.dry_run = true;
  complete_task(parsed);
}

void complete_task(ParsedSettings& parsed) {
  refuse_unread(parsed);
  refuse_adapter_as_model(parsed);
  train::complete_classification(parsed);
  train::complete_preferences(parsed);
  train::complete_grpo(parsed);
  train::keep_documents_apart(parsed);
}

bool trains(std::string_view subcommand) { return find(subcommand) != nullptr; }

std::vector<std::string_view> groups_of_training() {
  return {"model",     "free", "data", "train", "eval",   "optimizer", "lr_schedule", "pipeline", "recompute", "wrap",
          "objective", "lora", "dpo",  "grpo",  "reward", "schedule",  "offload",     "save",     "checkpoint"};
}

config::Overlay training_overlay(std::string_view subcommand) {
  const Training* training = find(subcommand);
  check_invariant(training != nullptr, "a training command");
  return {.values = training->defaults, .command = std::string(subcommand), .section = "launch"};
}

int run_pretrain(Arguments arguments) { return run_training(*find("pretrain"), arguments); }
int run_finetune_full(Arguments arguments) { return run_training(*find("finetune_full"), arguments); }
int run_finetune_lora(Arguments arguments) { return run_training(*find("finetune_lora"), arguments); }
int run_finetune_dpo(Arguments arguments) { return run_training(*find("finetune_dpo"), arguments); }
int run_grpo(Arguments arguments) { return run_training(*find("grpo"), arguments); }

}  // namespace trireme::cli
