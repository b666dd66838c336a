// What follows from several keys: two of three batch sizes give the third on the ranks that start, B = m x g x
// data-parallel ranks; a warm-up may be a share of the run; and a schedule counts its steps from 0 or from 1.
#pragma once

#include <string_view>

#include "trireme/dialects/reading.h"

namespace trireme::dialects {

/// Sets train.micro_batch_size and train.global_batch_size from two of B, m and g; the keys' names differ between
/// systems. A key that is empty is not there.
void set_batch(Reading& reading, std::string_view batch, std::string_view micro, std::string_view accumulation);

/// What part of a step is.
enum class PartOfStep { nearest, a_step, nothing };

/// Sets train.lr_warmup_steps from `share`, the key of a share of the run, at least 0 and at most 1. Refuses it if the
/// run's length is not known; `lengths` says which keys would give that, or the steps.
void set_warmup_share(Reading& reading, const config::Given& share, std::string_view lengths,
                      PartOfStep part = PartOfStep::nearest);

/// The first step has number 0 in the schedule's formula, as in PyTorch, where the schedule has such a setting: those
/// of DeepSpeed and OneCycleLR count in one way only.
void suggest_first_step_0(Reading& reading);

}  // namespace trireme::dialects
