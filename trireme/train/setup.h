// From settings to what a run is made of: the model's shape, precision, the step's plan. The launcher, every rank and
// `trireme explain` call these functions and get the same answers.
#pragma once

#include <filesystem>
#include <memory>

#include "trireme/data/conversation_source.h"
#include "trireme/data/training_data.h"
#include "trireme/launch/identity/environment.h"
#include "trireme/model/config.h"
#include "trireme/model/from_settings.h"
#include "trireme/model/model.h"
#include "trireme/optim/lr_schedule.h"
#include "trireme/optim/optimizer.h"
#include "trireme/plan/step_plan.h"
#include "trireme/settings/settings.h"
#include "trireme/text/tokenizer.h"

namespace trireme::train {

/// The settings, checked for this run's ranks: a program of one's own calls run_task() without a command before it.
/// Errors    UsageError as validate() and validate_backend()
const Settings& checked(const Settings& settings, const launch::RankEnvironment& environment);

model::Precision resolve_precision(const Settings& settings);

/// Tokens of one sample: train.max_seq_length, or the longest sequence of the model.
/// Errors    UsageError if it exceeds the model's positions
int64_t sequence_length(const Settings& settings, const model::ModelConfig& model);

comm::ProcessMesh resolve_mesh(const Settings& settings, int num_ranks);

/// What a run of these settings makes of its tokens' log-probabilities.
model::Objective objective_of(const Settings& settings);

/// Refuses a model with labels for another task than classify, and one without for that task.
/// Errors    UsageError
void check_task(const Settings& settings, const model::ModelConfig& model);

/// The model on the rank of `request`, in groups and with the adapters that the settings ask for.
/// Errors    UsageError, also as check_task(); CheckpointError (the folder of lora.initial_adapter)
model::Model build_run_model(const Settings& settings, const model::ModelConfig& config,
                             const plan::StepRequest& request);

/// The request for rank `rank` of `num_ranks`, with what choose_offload() (chosen_offload.h) has chosen.
/// Errors    UsageError if nothing fits in offload.fit; as choose_offload()
plan::StepRequest step_request(const Settings& settings, const model::ModelConfig& model, int rank, int num_ranks);
/// The same where nothing leaves the ranks' memory.
plan::StepRequest request_without_offload(const Settings& settings, const model::ModelConfig& model, int rank,
                                          int num_ranks);

/// Conversations as the settings name them, of at most train.max_seq_length tokens, plus one for the last target.
data::ConversationSource conversation_source(const Settings& settings);

/// Where the run's text comes from, and how it is cut. The Austen corpus is data/austen.txt, made by `make setup`.
/// Errors    UsageError if data.train_data_path is needed and missing, or a mixture is invalid
data::TrainingDataOptions training_data_options(const Settings& settings, int64_t sequence);

/// The folder of what rests on a disk.
std::filesystem::path offload_path(const Settings& settings);

/// The path of the run's tokenizer: data.tokenizer, or the model's folder; empty: text is read as bytes.
std::filesystem::path tokenizer_path(const Settings& settings);

/// Loads it.
/// Errors    UsageError, also if the model's vocabulary is too small for it
std::unique_ptr<text::Tokenizer> resolve_tokenizer(const Settings& settings, const model::ModelConfig& model);

/// The tokenizer of a checkpoint: from its own files, or bytes if it has none.
/// Errors    as resolve_tokenizer
std::unique_ptr<text::Tokenizer> checkpoint_tokenizer(const std::filesystem::path& folder,
                                                      const model::ModelConfig& model);

/// Threads that a rank computes with on this machine: launch.threads_per_rank, OMP_NUM_THREADS, or its share of the
/// cores. Plans made without ranks assume the same number.
int threads_of_a_rank(const Settings& settings);

/// Refuses a model that these settings cannot train, and what ranks on GPUs do not compute. No GPU is looked for.
/// Errors    UsageError, in one sentence; as step_request(), build_run_model() and plan::plan_without_lists()
void check_model(const Settings& settings, const model::ModelConfig& config);

/// Plans the step without allocating it. Returns the bytes of host memory that the arenas of all ranks of the first
/// machine take; on GPUs, what they offload to it. The launcher compares this with the machine's memory before
/// it starts ranks (launch/machines/room.h).
///
/// Cost      a plan for each rank of a machine: milliseconds, more with many pipeline stages and micro-batches
/// Errors    UsageError for combinations that cannot work, as check_model, and if the copy for save.mode async
/// does not fit in memory
int64_t plan_host(const Settings& settings);

/// Refuses a disk that cannot take what the ranks of this machine offload, with offload.fit too. Only where they run:
/// other machines have other disks.
///
/// Cost      as plan_host if anything is offloaded
/// Errors    UsageError for the folder, FileError (ENOSPC) for its room
void check_offload_disk(const Settings& settings);

/// What a resumed run has behind it. Its steps may have had another train.global_batch_size than those to come.
struct Done {
  int64_t step = 0, samples = 0, tokens = 0;
};

/// Optimizer steps of the whole run, those that are `done` included: the fewest that max_steps, max_tokens and epochs
/// allow; 0: only max_time ends it.
/// Errors    UsageError if that is less than one step
int64_t run_steps(const Settings& settings, int64_t sequence, int64_t samples_per_epoch, const Done& done = {});

/// The setting that ends the run at step `last`, if nothing is left to do: "train.max_steps".
const char* ending_setting(const Settings& settings, int64_t last, int64_t tokens_done, int64_t tokens_per_step);

/// "nothing to do: ...", and that setting to raise, for a run that ends at step `last`, where its checkpoint already
/// is.
std::string nothing_to_do(const Settings& settings, int64_t last, int64_t step, int64_t tokens_done,
                          int64_t tokens_per_step);

/// Steps from one evaluation to the next: eval.interval. If that is auto: a twentieth of `steps` (0: the run has no
/// end), or more if training would take less than 20 times as long as evaluating `num_samples` samples; 50 to 600.
int64_t evaluation_interval(const Settings& settings, int64_t steps, int64_t num_samples);

/// What save.keep_best cannot do in a run of `steps` steps (0: no end is known): a sentence, or "". It says nothing of
/// a run that saves its last step only.
std::string unkept_best(const Settings& settings, int64_t steps, int64_t num_held_out);

/// The learning rate of each of `steps` steps; without an end (0), a schedule that needs it is constant after the
/// warm-up.
optim::LrSchedule lr_schedule(const Settings& settings, int64_t steps);

}  // namespace trireme::train
