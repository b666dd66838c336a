// `trireme explain mesh`: a table of who talks to whom.
#pragma once

#include <string>

#include "trireme/config/settings.h"

namespace trireme::cli {

/// Errors    UsageError: settings that cannot work
std::string mesh_text(const config::Settings& settings);

}  // namespace trireme::cli
