// The evaluations before a start's first step: one that eval.initial_validation asks for, and one that a stop has cut.
#pragma once

#include "trireme/train/checkpointing.h"
#include "trireme/train/observers.h"
#include "trireme/train/session.h"
#include "trireme/train/stopping.h"
#include "trireme/train/task.h"

namespace trireme::train {

/// Evaluates what is due before the first step of this start, of a task with held-out samples. A step that was saved
/// while a stop cut its evaluation (RunState::evaluation_due) is evaluated now, so that the run has the numbers of one
/// that nobody stopped, and save.keep_best knows them. They join the step's row. Every rank must call. If the ranks
/// stop meanwhile, it returns with nothing told.
void evaluate_before_training(Session& s, Task& task, RunState& state, Observers& observers, const Stopping& stopping,
                              const StopCheck& stops);

}  // namespace trireme::train
