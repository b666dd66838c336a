// What DeepSpeed's keys mean together: batch sizes, stages, the optimizer and the scheduler.
#pragma once

#include "trireme/dialects/reading.h"

namespace trireme::dialects::ds {

void stage(Reading& reading, const config::Given& entry);
void flag_stage(Reading& reading, const config::Given& entry);
void bucket(Reading& reading, const config::Given& entry);
void prefetch_bucket(Reading& reading, const config::Given& entry);
void overlap(Reading& reading, const config::Given& entry);
void part_of_offload(Reading& reading, const config::Given& entry);
void mixed(Reading& reading, const config::Given& entry);
void loss_scale(Reading& reading, const config::Given& entry);
void clip(Reading& reading, const config::Given& entry);
void autocast(Reading& reading, const config::Given& entry);
void ulysses(Reading& reading, const config::Given& entry);
void tensor_parallel(Reading& reading, const config::Given& entry);
void recompute(Reading& reading, const config::Given& entry);
void stages(Reading& reading, const config::Given& entry);
void optimizer(Reading& reading, const config::Given& entry);
void of_optimizer(Reading& reading, const config::Given& entry);
/// Keys that several of the above need: batches, schedulers, defaults.
void finish(Reading& reading);

/// Sets train.micro_batch_size and train.global_batch_size from two of B = m x g x data ranks; the keys' names differ
/// between systems. A key that is empty is not there.
void set_batch(Reading& reading, std::string_view batch, std::string_view micro, std::string_view accumulation);

}  // namespace trireme::dialects::ds
