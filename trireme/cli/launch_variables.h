// torchrun's options, and the variables that it reads as their defaults: PET_NNODES for --nnodes. Kubernetes' training
// operator sets them. `trireme launch` reads them, too. Source: torch/distributed/run.py and argparse_util.py.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/given.h"
#include "trireme/config/parse.h"
#include "trireme/launch/identity/environment.h"

namespace trireme::cli {

struct TorchrunOption {
  std::string_view name;
  std::string_view unread = {};  ///< why it has nothing to decide here; empty: an option that counts
  bool is_word = true;  ///< of an unread one: may also be typed
  bool is_flag = false;
  bool is_about_machines = false;  ///< counts less than a typed list or file of machines, and than --standalone
};
std::span<const TorchrunOption> torchrun_options();

/// Whether the option was typed by this name or Accelerate's.
bool is_typed(const config::Parsed& parsed, std::string_view option);

/// The name that Accelerate has for an option of torchrun; empty if it has none.
std::string_view name_in_accelerate(std::string_view option);

/// The values of options that count and were not typed, from the variables that are set and not empty.
std::vector<config::Given> given_by_variables(const config::Parsed& typed, const launch::EnvironmentLookup& lookup);

/// "PET_ROLE has no effect: all ranks have one role" for each variable that asks for something which is not read.
std::vector<std::string> notes_on_variables(const launch::EnvironmentLookup& lookup);

/// The number of ranks that torchrun's words "gpu", "cpu" and "auto" (as gpu, or cpu where there is no GPU) mean, as
/// the row of nproc_per_node takes it; else `value`. Errors    UsageError if there is no GPU for "gpu"
std::string count_of_ranks(const std::string& value);

}  // namespace trireme::cli
