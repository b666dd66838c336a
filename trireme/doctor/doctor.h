// trireme doctor: checks the machines and ranks of a run before the run. Every rank gathers facts (facts.h) and sends
// them to rank 0 through the store, which works even if the ranks cannot reach each other. Then pairs of ranks, one
// after the other, measure the connection between them (pairs.h), and all ranks run a few collectives. Rank 0 judges
// (judge.h) and prints.
#pragma once

#include "trireme/launch/identity/environment.h"
#include "trireme/settings/settings.h"

namespace trireme::doctor {

/// Rank 0's exit code if a finding is Grade::fail: a result of the check, not a failure of the rank.
constexpr int kFoundFailing = 1;

/// Every rank calls it; rank 0 prints the report, and writes the file doctor.json if that is set.
///
/// Cost      about 2 s on one host of two ranks; 0.2 s more for each pair
/// Returns   kFoundFailing on rank 0 if a finding is Grade::fail; else 0
/// Errors    CommError naming the rank that has not joined within comm.timeout; UsageError for a file that cannot be
///           written
int run_doctor(const Settings& settings, const launch::RankEnvironment& environment);

}  // namespace trireme::doctor
