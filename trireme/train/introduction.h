// What a run says of itself at its begin and its end.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/config/settings.h"
#include "trireme/data/tokenizer.h"
#include "trireme/data/training_data.h"
#include "trireme/observe/memory_usage.h"
#include "trireme/train/session.h"

namespace trireme::train {

/// The line of the data: how much of it, for what, in which order.
std::string describe_data(const config::DataSettings& settings, const data::TrainingData& data,
                          const data::Tokenizer& tokenizer);

/// "outside the plan: 140 MiB of the program and LibTorch, 4 MiB of scratch for matrix products": what resident memory
/// holds besides the plan's. `program` is measured before the plan's memory is there.
std::string outside_the_plan(const std::optional<observe::MemoryUsage>& program, int threads);

/// Writes out_dir/loss.svg from metrics.jsonl, and returns the same curve and where it is as lines for the reader;
/// nothing where there are too few steps. Errors    FileError
std::vector<std::string> draw_loss_curve(const Session& session, const std::string& tokenizer);

}  // namespace trireme::train
