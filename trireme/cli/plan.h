// Parts of `trireme plan`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

/// What hardware says of a run's settings, where the user says nothing: that ranks are GPUs, and their number format.
/// Returns a sentence about a format that is not what one expects; else nothing.
std::string settle(ParsedSettings& parsed, const costs::Hardware& hardware);
/// The same of a cluster, and how many ranks there are.
std::string settle(ParsedSettings& parsed, const costs::Cluster& cluster);

/// Why a run of this plan is refused on GPUs; empty: it is not, or its ranks are processors.
std::string refused_on_gpus(const plan::StepPlan& plan, const Settings& settings);

/// Sets the global batch to `asked` sequences, rounded to what the micro-batches of all data ranks divide, in whole
/// rounds of the pipeline.
void round_batch(Settings& settings, int64_t asked);

/// The first layout that fits, for models of several sizes on several clusters: Markdown.
/// Cost      half a minute
std::string strategy_table();

}  // namespace trireme::cli
