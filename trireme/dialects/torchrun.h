// Accepts torchrun's words for the launch settings, on training commands: --nnodes 2 means --launch.nnodes 2.
#pragma once

#include "trireme/config/given.h"

namespace trireme::dialects {

/// Rewrites torchrun's words; a config::Dialect.
void torchrun(config::Given& given);

}  // namespace trireme::dialects
