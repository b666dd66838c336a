// What a run prints about itself at its start and its end.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/data/training_data.h"
#include "trireme/observe/memory_usage.h"
#include "trireme/text/tokenizer.h"
#include "trireme/train/pace.h"
#include "trireme/train/session.h"
#include "trireme/train/starting_point.h"
#include "trireme/train/task.h"

namespace trireme::train {

/// All lines that rank 0 prints at the start. `moved` is what Task::restore() returned.
std::vector<std::string> introduction(Session& session, const Task& task, const StartingPoint& start,
                                      const std::string& moved, const Pace& pace);

/// The line about the data: how much there is, what it is used for, in which order.
std::string describe_data(const data::DataSettings& settings, const data::TrainingData& data,
                          const text::Tokenizer& tokenizer);

/// "outside the plan: 140 MiB of the program and LibTorch, 4 MiB of scratch for matrix products": resident memory that
/// the plan does not count. `program` is measured before the plan's memory is allocated. A rank on a GPU has no such
/// scratch; there driver and libraries take memory of the device.
std::string outside_the_plan(const std::optional<observe::MemoryUsage>& program, int threads, bool on_gpu);

/// Writes out_dir/loss.svg from metrics.jsonl, and returns lines with the same curve as text and the file's path;
/// nothing if there are too few steps. `unit` is the unit of the loss: "nats a byte". Errors    FileError
std::vector<std::string> draw_loss_curve(const Session& session, const std::string& unit);

}  // namespace trireme::train
