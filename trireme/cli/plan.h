// Parts of `trireme plan`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/cli/explain.h"
#include "trireme/costs/hardware.h"
#include "trireme/costs/report.h"
#include "trireme/settings/parse.h"

namespace trireme::cli {

/// Of devices the fullest counts. All stages count where ranks share a machine's memory: on processors, and with what
/// devices offload.
plan::PlacedStages stages_that_count(const Settings& settings, const costs::Machines& machines);

/// They point to `plans`.
costs::StagePlans stages_of(const std::vector<plan::StepPlan>& plans);

/// How the user named hardware.
struct NamedHardware {
  std::string what;  ///< "the cluster 8xH100"
  std::string option;  ///< "--cluster 8xH100"
  std::string processors;  ///< the option that names processors: "--cluster 2xthis"
  bool typed = true;  ///< false: it is the command's default
};

/// A run that is resumed keeps what it learns with, on any cluster.
bool is_settled(const ParsedSettings& parsed, const std::string& key);

/// What hardware says of a run's settings: whether ranks are GPUs, and, where the user says nothing, their number
/// format. Hardware that was typed counts more than a file's settings. Returns sentences about what one does not
/// expect: settings that give way, and the format.
/// Errors    UsageError: another accelerator was typed, or is given beside hardware that nobody typed
std::vector<std::string> settle(ParsedSettings& parsed, const costs::Hardware& hardware, const NamedHardware& named);
/// The same of a cluster, and how many ranks there are. Counts that were typed stay.
std::vector<std::string> settle(ParsedSettings& parsed, const costs::Cluster& cluster, const NamedHardware& named);

/// Throws `refusal` again as one that names the hardware, which made ranks GPUs.
[[noreturn]] void blame_hardware(const ProcessorsOnly& refusal, const NamedHardware& named);

/// Why a run of this plan is refused on GPUs; empty: it is not, or its ranks are processors.
std::string refused_on_gpus(const plan::StepPlan& plan, const Settings& settings);
/// The same on this hardware, which may lack kernels or a number format.
std::string refused_on_gpus(const plan::StepPlan& plan, const Settings& settings, const costs::Hardware& hardware);

/// What takes less memory, and is not done yet, for the line `try`. `may_shorten`: shorter sequences are possible.
/// Cost      a plan for each way to offload or to divide
std::string next_steps(const Settings& settings, const costs::Machines& machines, bool may_shorten);

/// Sets the global batch to `asked` sequences, rounded to what the micro-batches of all data ranks divide, in whole
/// rounds of the pipeline.
void round_batch(Settings& settings, int64_t asked);

/// Which layout takes models of several sizes on several clusters: of those that fit and do no further arithmetic, the
/// fastest; else the first that fits. Markdown.
/// Cost      half a minute
std::string strategy_table();

}  // namespace trireme::cli
