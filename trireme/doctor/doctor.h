// trireme doctor: looks at the machines and ranks of a run before the run. Every rank gathers facts (facts.h) and hands
// them to rank 0 through the store, which works even where ranks cannot reach each other otherwise; pairs of ranks
// measure what lies between them, one pair after the other (pairs.h); then all run a few collectives. Rank 0 judges
// (judge.h) and prints.
#pragma once

#include <string>

#include "trireme/config/settings.h"
#include "trireme/launch/environment.h"

namespace trireme::doctor {

/// Exit code of a rank that found something failing: the answer, not a failure of the rank.
constexpr int kFoundFailing = 1;

/// Every rank calls it; rank 0 prints the report, and writes doctor.json where it is given.
///
/// Cost      about 2 s on one host of two ranks; 0.2 s more for each pair
/// Returns   on rank 0 kFoundFailing where a finding is Grade::fail; else 0
/// Errors    CommError naming the rank that has not come within comm.timeout; UsageError for a file that cannot be
///           written
int run_doctor(const config::Settings& settings, const launch::RankEnvironment& environment);

}  // namespace trireme::doctor
