// TRL's fields that decide nothing here, or cannot be had: loading, logging, the hub, and what TRL itself seldom reads.
#pragma once

#include <vector>

#include "trireme/dialects/dialect.h"

namespace trireme::dialects {

std::vector<Row> trl_trainer_rows();

}  // namespace trireme::dialects
