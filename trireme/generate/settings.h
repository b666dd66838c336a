// Bounds of the numbers with which tokens are drawn. The settings of commands have them, and requests of programs.
#pragma once

#include "trireme/config/declaration.h"

namespace trireme::generate::bounds {

inline config::Rules temperature() { return {.at_least = 0}; }
inline config::Rules top_p() { return {.above = 0, .at_most = 1}; }
inline config::Rules min_p() { return {.at_least = 0, .at_most = 1}; }
inline config::Rules repetition_penalty() { return {.above = 0}; }

}  // namespace trireme::generate::bounds
