// `trireme bench train`: the time of a training step, on tokens drawn at random, with no files and no evaluation.
#pragma once

#include "trireme/config/settings.h"
#include "trireme/launch/environment.h"

namespace trireme::train {

/// Times settings.bench.steps steps after settings.bench.warmup and prints median, spread, tokens/s, distance to the
/// peak and where the time goes; with bench.json the same as JSON: model, ranks, strategy, precision, backend,
/// tokens_per_step, step_seconds [], median_seconds, tokens_per_second, peak_fraction, losses [],
/// peak_rss_bytes, planned_bytes, first_step_seconds, action_seconds {kind: median}, minor_faults_per_step.
/// Every rank calls it; rank 0 prints.
int bench_train(const config::Settings& settings, const launch::RankEnvironment& environment);

}  // namespace trireme::train
