#include <fmt/format.h>

#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/checkpoint/load.h"
#include "trireme/cli/data_commands.h"
#include "trireme/cli/training.h"
#include "trireme/data/ledger.h"
#include "trireme/data/training_data.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/resume_settings.h"
#include "trireme/train/run_data.h"
#include "trireme/train/setup.h"
#include "trireme/train/starting_point.h"

namespace trireme::cli {
namespace {

/// The first sample of a step of a run that goes on from a checkpoint. Of steps before it, only a count is kept: their
/// samples are known where one batch explains it.
int64_t first_sample(int64_t step, const Settings& s, const data::DataIdentity& data,
                     const std::filesystem::path& resume) {
  const int64_t batch = s.train.global_batch_size;
  if (resume.empty()) return (step - 1) * batch;
  train::RunState state = train::parse_run_state(checkpoint::open_checkpoint(resume).state_json, resume);
  const bool is_steady = data == state.data && state.samples == state.step * batch;
  if (step <= state.step && !is_steady)
    throw UsageError(
        fmt::format("error: step {} lies before {} (step {}), which was reached with other batches or other data\n"
                    "  name the checkpoint from which the run went on to that step: --resume CHECKPOINT",
                    step, resume.string(), state.step));
  if (step <= state.step) return (step - 1) * batch;
  train::meet_data(s.data, data, state);
  return state.samples + (step - state.step - 1) * batch;
}

}  // namespace

int data_ledger(const ParsedSettings& given) {
  ParsedSettings parsed = given;
  if (!parsed.list.empty()) {
    parsed.settings.model.name = parsed.list[0];
    parsed.provenance["model"] = {config::Source::Kind::command_line, "command line", parsed.list[0]};
  }
  if (!parsed.settings.prepare.step)
    throw UsageError("error: trireme data ledger needs --step N: the optimizer step whose samples are listed, from 1");
  train::place_run(parsed);
  train::take_over_run(parsed);
  const Settings& s = parsed.settings;
  if (s.task != train::Learning::language || model::config_of(s.model).is_classifier())
    throw UsageError(
        "error: trireme data ledger lists the samples of task language; data.ledger true records those of a run of "
        "another task");
  refuse_data_that_is_elsewhere(parsed);
  const std::filesystem::path resume = train::find_resume(s);
  const model::ModelConfig model = model::config_of(s.model);
  data::TrainingDataOptions options = train::training_data_options(s, train::sequence_length(s, model));
  train::keep_choices(options, resume);
  const data::TrainingData data = data::load_training_data(options, *train::resolve_tokenizer(s, model));
  const int64_t batch = s.train.global_batch_size, first = first_sample(*s.prepare.step, s, data.identity, resume);
  const data::SampleStream& samples = *data.train;
  if (!s.prepare.json)
    fmt::print("step {}: samples {} to {}, {} targets, in epoch {:.4f} of {} samples each\n", *s.prepare.step, first,
               first + batch - 1, samples.supervised_tokens(first, batch),
               double(first) / double(samples.samples_per_epoch()), samples.samples_per_epoch());
  for (int64_t g = first; g < first + batch; ++g)
    fmt::print("{}", s.prepare.json ? data::ledger_json(samples, g) + "\n" : data::ledger_text(samples, g));
  return 0;
}

}  // namespace trireme::cli
