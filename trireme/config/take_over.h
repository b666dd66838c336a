// A resumed run's settings: those of its checkpoint where nobody gave others. What says where and on how many ranks a
// run computes is not taken, for any number of ranks continues any checkpoint: that comes from the command line, a
// file, the environment, or its defaults, as for a new run.
#pragma once

#include <string>
#include <vector>

#include "trireme/config/parse.h"

namespace trireme::config {

/// Whether a checkpoint's word for `key` holds when its run is resumed.
bool is_taken_over(std::string_view key);

/// Fills in what `saved_yaml` (to_yaml) says and the user does not; `place` is what messages call the checkpoint. Of a
/// model, data or optimizer of another name nothing is taken; nor what ends the run (train.max_steps, max_tokens,
/// epochs, max_time), where any of them is given. A key that is none any more is left out.
///
/// Errors    UsageError where a saved value is not allowed any more
void take_over(ParsedSettings& parsed, const std::string& saved_yaml, const std::string& place);

/// One line for each setting that changes what is learned and differs: "train.global_batch_size was 64, is 32 now".
std::vector<std::string> changes_since(const std::string& saved_yaml, const Settings& now);

}  // namespace trireme::config
