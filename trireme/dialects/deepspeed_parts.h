// DeepSpeed's table in parts, one for each file: their rows, and what their keys mean together.
#pragma once

#include <vector>

#include "trireme/dialects/reading.h"

namespace trireme::dialects::ds {

std::vector<Row> zero_rows();       // deepspeed_zero.cpp
std::vector<Row> precision_rows();  // deepspeed_precision.cpp
std::vector<Row> optimizer_rows();  // deepspeed_optimizer.cpp
std::vector<Row> scheduler_rows();  // deepspeed_scheduler.cpp
void finish_zero(Reading& reading);
void finish_precision(Reading& reading);
void finish_optimizer(Reading& reading);
void finish_scheduler(Reading& reading);
/// The rate of an optimizer whose default is not 0.001.
void suggest_rate(Reading& reading);
/// Whether the file's scheduler gives all parameters its own rate, whatever rates the optimizer has.
bool sets_all_rates(const Reading& reading);

/// The stage of ZeRO, which is 0 if it is not given.
int64_t stage_of(const Reading& reading);

// For systems whose files have DeepSpeed's keys inside.
void stage(Reading& reading, const config::Given& entry);
void clip(Reading& reading, const config::Given& entry);
inline constexpr std::string_view kSequenceDtype = "tokens are sent as they are computed";

}  // namespace trireme::dialects::ds
