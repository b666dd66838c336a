// Keys that TRL's command line reads beside the fields of GRPOConfig: what accelerate launch gets, mixtures of
// datasets, and variables of the environment. Source: TRL 1.16, trl/cli, trl/scripts/utils.py, trl/accelerate_configs.
#pragma once

#include <vector>

#include "trireme/dialects/reading.h"

namespace trireme::dialects {

std::vector<Row> trl_cli_rows();

/// Before all else, so that TRL's own keys count more: the file that accelerate_config names.
void trl_launcher(Reading& reading);

/// dataset_name, or the mixture `datasets`: grpo.prompts, if it is one file.
void trl_dataset(Reading& reading, const config::Given& entry);

}  // namespace trireme::dialects
