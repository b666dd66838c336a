// From settings to what a run is made of: the model's shape, precision, the step's plan. Pure functions, so that
// the launcher, every rank and `trireme explain` come to the same answer.
#pragma once

#include <filesystem>
#include <memory>

#include "trireme/config/settings.h"
#include "trireme/data/tokenizer.h"
#include "trireme/data/training_data.h"
#include "trireme/model/config.h"
#include "trireme/model/model.h"
#include "trireme/optim/lr_schedule.h"
#include "trireme/optim/optimizer.h"
#include "trireme/plan/step_plan.h"

namespace trireme::train {

/// The catalogue's (or a folder's config.json) shape with the `model.*` settings on top.
/// Errors    UsageError
model::ModelConfig resolve_model(const config::Settings& settings);

model::Precision resolve_precision(const config::Settings& settings);

/// Tokens of one sample: train.max_seq_length, or the model's longest.
/// Errors    UsageError when it exceeds the model's positions
int64_t sequence_length(const config::Settings& settings, const model::ModelConfig& model);

/// How parameters are gathered into flat groups.
model::Grouping grouping(const config::Settings& settings);

/// The mesh of `num_ranks` ranks.
comm::ProcessMesh resolve_mesh(const config::Settings& settings, int num_ranks);

/// The request for rank `rank` of `num_ranks`.
plan::StepRequest step_request(const config::Settings& settings, const model::ModelConfig& model, int rank,
                               int num_ranks);

/// Where the run's text comes from, and how it is cut; the Austen corpus is data/austen.txt, made by `make setup`.
/// Errors    UsageError when data.train_data_path is needed and missing; a mixture that is none
data::TrainingDataOptions training_data_options(const config::Settings& settings, int64_t sequence);

/// Where the run's tokenizer lies: data.tokenizer, or the model's folder; empty: text is read as bytes.
std::filesystem::path tokenizer_path(const config::Settings& settings);

/// Loads it, and refuses one whose ids the model has no rows for.
/// Errors    UsageError
std::unique_ptr<data::Tokenizer> resolve_tokenizer(const config::Settings& settings, const model::ModelConfig& model);

/// The tokenizer that belongs to a checkpoint: its own files, or bytes where it has none.
/// Errors    UsageError as resolve_tokenizer
std::unique_ptr<data::Tokenizer> checkpoint_tokenizer(const std::filesystem::path& folder,
                                                      const model::ModelConfig& model);

/// Threads that a rank of these settings computes with when it runs on this machine: launch.threads_per_rank,
/// OMP_NUM_THREADS, or its share of the cores. What is planned without ranks is planned for as many.
int threads_of_a_rank(const config::Settings& settings);

/// Optimizer steps of the run, from max_steps, max_tokens or epochs (the fewest); 0: only max_time ends it.
/// Errors    UsageError where that is less than one step
int64_t run_steps(const config::Settings& settings, int64_t sequence, int64_t samples_per_epoch);

/// Steps from one evaluation to the next: eval.interval; where it is left to choose a twentieth of `steps` (0: the run
/// has no end), but as many as take 20 times as long as an evaluation of `num_samples` held-out samples; 50 to 600.
int64_t evaluation_interval(const config::Settings& settings, int64_t steps, int64_t num_samples);

/// The learning rate of each of `steps` steps; constant behind the warm-up where there is no end (0).
optim::LrSchedule lr_schedule(const config::Settings& settings, int64_t steps);

/// The run's optimizer; lr and step are set for each step.
optim::OptimizerOptions optimizer_options(const config::Settings& settings);

}  // namespace trireme::train
