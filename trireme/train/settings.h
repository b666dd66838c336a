// Settings for training, evaluation and generation.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/config/declaration.h"
#include "trireme/optim/settings_lr.h"

namespace trireme::train {

/// Where a run starts from: `resume: false | true | auto | FOLDER`.
struct Resume {
  enum class From { nothing, newest, newest_if_any, folder };
  From from = From::nothing;
  std::string folder;  ///< a checkpoint, or a folder of checkpoints; only with From::folder
  std::optional<std::string> named = {};  ///< of a restart: the folder that its user named; "" if none
  bool operator==(const Resume&) const = default;
};
std::span<const config::Choice<Resume::From>> choices_of(Resume::From);

/// What a run learns.
enum class Learning {
  language,  ///< to continue text
  classify,  ///< which label a text has
  preferences,  ///< which of two replies is the better one
  rewards,  ///< to write answers that are rewarded
};
std::span<const config::Choice<Learning>> choices_of(Learning);

struct RunSettings {
  Learning task = Learning::language;
  std::string out_dir = "out/pretrain";
  Resume resume;
  bool overwrite = false;
  bool dry_run = false;
  bool predict = false;
  int64_t seed = 42;
  bool operator==(const RunSettings&) const = default;
};
config::Section section(RunSettings& settings);

struct TrainSettings {
  int64_t global_batch_size = 64;
  int64_t micro_batch_size = 4;
  std::optional<int64_t> max_steps;
  std::optional<int64_t> max_tokens;
  std::optional<int64_t> epochs;
  std::optional<std::chrono::milliseconds> max_time;
  std::optional<int64_t> max_seq_length;
  std::optional<int64_t> lr_warmup_steps;  ///< absent: optim::default_warmup_steps()
  optim::LrDecay lr_decay = optim::LrDecay::cosine;
  std::optional<double> min_lr;  ///< absent: lowest_lr()
  std::optional<double> max_norm = 1.0;
  std::optional<int64_t> save_interval = 1000;
  int64_t log_interval = 1;
  std::optional<std::vector<std::string>> loggers;
  std::optional<std::vector<std::string>> logger_command;
  std::optional<std::string> run_name;  ///< absent: run_name() of out_dir.h
  std::optional<int64_t> prometheus_port;
  std::string prometheus_address = "127.0.0.1";
  bool operator==(const TrainSettings&) const = default;
};
config::Section section(TrainSettings& settings);

struct EvalSettings {
  std::optional<int64_t> interval;  ///< absent: evaluation_interval()
  int64_t max_iters = 100;
  bool initial_validation = false;
  bool final_validation = true;
  std::optional<int64_t> max_new_tokens;    ///< of a sample reply at each evaluation; absent: none is written
  std::string evaluate_example = "first";   ///< its prompt: first, random, a number or a text
  bool operator==(const EvalSettings&) const = default;
};
config::Section section(EvalSettings& settings);

struct GenerateSettings {
  std::string checkpoint;
  std::optional<std::string> adapter, base;
  std::string prompt;
  std::optional<std::string> prompts, output;
  int64_t samples = 1;
  int64_t batch_size = 32;
  std::optional<int64_t> cache_tokens;
  int64_t max_new_tokens = 200;
  double temperature = 0.8;
  std::optional<int64_t> top_k = 50;
  double top_p = 1.0;
  double min_p = 0;
  double repetition_penalty = 1;
  bool logprobs = false;
  int64_t seed = 42;
  std::optional<std::vector<std::string>> stop;
  bool chat = false;
  std::optional<std::string> system;
  std::optional<std::string> chat_template;
  bool operator==(const GenerateSettings&) const = default;
};
config::Section section(GenerateSettings& settings);

struct EvaluateSettings {
  std::string checkpoint;
  std::optional<std::string> adapter, base;
  std::optional<std::string> text;
  std::optional<std::string> multiple_choice;
  std::optional<std::vector<std::string>> tasks, fewshot;  ///< each "NAME=FILE"
  int64_t num_fewshot = 0;
  std::optional<std::string> classify;
  std::optional<std::string> score;
  std::optional<std::string> predictions;
  std::optional<int64_t> max_seq_length;
  std::optional<int64_t> limit;
  std::optional<std::string> json;
  bool operator==(const EvaluateSettings&) const = default;
};
config::Section section(EvaluateSettings& settings);

/// Refuses a run without an end.
void check_run_length(const TrainSettings& settings, config::Problems& problems);

}  // namespace trireme::train
