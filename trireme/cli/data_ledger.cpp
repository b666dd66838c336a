#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/cli/data_commands.h"
#include "trireme/data/ledger.h"
#include "trireme/data/training_data.h"
#include "trireme/train/setup.h"

namespace trireme::cli {

int data_ledger(const ParsedSettings& parsed) {
  Settings s = parsed.settings;
  if (!parsed.list.empty()) s.model.name = parsed.list[0];
  if (!s.prepare.step)
    throw UsageError("error: trireme data ledger needs --step N: the optimizer step whose samples are listed, from 1");
  if (s.task != train::Learning::language)
    throw UsageError(
        "error: trireme data ledger lists the samples of task language; data.ledger true records those of a run of "
        "another task");
  const model::ModelConfig model = model::config_of(s.model);
  const int64_t sequence = train::sequence_length(s, model);
  const data::TrainingData data =
      data::load_training_data(train::training_data_options(s, sequence), *train::resolve_tokenizer(s, model));
  const int64_t batch = s.train.global_batch_size, first = (*s.prepare.step - 1) * batch;
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
