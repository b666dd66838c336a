// `trireme bench train|ops|gemm|collectives|checkpoint|data|scaling`: each measures one part of a training step alone,
// and the limit that it is compared with. It prints a table, and writes JSON if bench.json names a file. Each takes
// under a minute; with bench.quick it takes a few seconds, but then the figures mean little. `command` is stored in the
// JSON. All return the process's exit code.
#pragma once

#include <span>
#include <string>

#include "trireme/bench/report.h"
#include "trireme/launch/identity/environment.h"
#include "trireme/settings/settings.h"

namespace trireme::bench {

/// Times settings.bench.steps training steps after settings.bench.warmup, on fixed random tokens: median, spread,
/// tokens/s, distance to the peak, where the time goes, what is resident. docs/benchmarks.md lists the keys of its
/// JSON. Every rank calls it; rank 0 prints.
int bench_train(const Settings& settings, const launch::RankEnvironment& environment);

/// Every function of ops/ops.h, the optimizers and the squared norm, with the widths of the model, at a size beyond the
/// caches and at one inside a core's cache.
int bench_ops(const Settings& settings, const std::string& command);

/// The products of the model's shapes, forward and both backward, with the tokens of one micro-batch.
int bench_gemm(const Settings& settings, const std::string& command);

/// Every collective over sizes from 4 KiB to 64 MiB. All ranks call it; rank 0 prints.
int bench_collectives(const Settings& settings, const launch::RankEnvironment& environment, const std::string& command);
/// Errors    UsageError: a single rank, a backend that it does not time
void check_collectives(const Settings& settings, const launch::RankEnvironment& environment);

/// Save and load of the model's training state in a temporary folder below out_dir. All ranks call it; rank 0 prints.
int bench_checkpoint(const Settings& settings, const launch::RankEnvironment& environment, const std::string& command);

/// The batch loader alone, beside the tokens that a training step consumes.
int bench_data(const Settings& settings, const std::string& command);

/// `bench train` once for each number of ranks, as a child of this process; `arguments` go to each of them.
int bench_scaling(const Settings& settings, std::span<const std::string> arguments, const std::string& command);

/// Prints the table, and writes bench.json if it is given.
void deliver(const Report& report, const Settings& settings);

/// Sets LibTorch's number of threads to bench.threads, or 1, and returns it.
int use_threads(const Settings& settings);

}  // namespace trireme::bench
