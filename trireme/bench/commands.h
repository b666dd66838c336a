// `trireme bench train|ops|gemm|generate|collectives|checkpoint|data|scaling`: each measures one part of a training
// step alone, and the limit that this part is compared with. Each prints a table, and writes JSON if bench.json names a
// file. Each takes under a minute; with bench.quick it takes a few seconds, but then the figures mean little. `command`
// is the command line, which is stored in the JSON. All return the process's exit code.
#pragma once

#include <string>

#include "trireme/bench/report.h"
#include "trireme/launch/identity/environment.h"
#include "trireme/settings/settings.h"

namespace trireme::bench {

/// Times settings.bench.steps training steps on fixed random tokens, after settings.bench.warmup steps. Reports median,
/// spread, tokens/s, the share of peak FLOP/s, where the time goes, and resident memory. docs/benchmarks.md lists the
/// keys of its JSON. Every rank calls it; rank 0 prints.
int bench_train(const Settings& settings, const launch::RankEnvironment& environment);

/// Times every function of ops/ops.h, the optimizers and the squared norm, with the widths of the model. Each is timed
/// at two sizes: one larger than all caches, and one that fits in a core's cache.
int bench_ops(const Settings& settings, const std::string& command);

/// Times the model's matrix products for the tokens of one micro-batch: forward, and the two products of backward.
int bench_gemm(const Settings& settings, const std::string& command);

/// Times writing 1, 8 and 32 texts and reading a prompt, with weights that are all the same number. The limit is the
/// memory's read rate or the arithmetic peak, whichever allows less.
int bench_generate(const Settings& settings, const std::string& command);

/// Times every collective over sizes from 4 KiB to 64 MiB. All ranks call it; rank 0 prints.
int bench_collectives(const Settings& settings, const launch::RankEnvironment& environment, const std::string& command);
/// Errors    UsageError: there is only one rank, or the backend is one that bench_collectives does not time
void check_collectives(const Settings& settings, const launch::RankEnvironment& environment);

/// Times saving and loading the model's training state in a temporary folder below out_dir. All ranks call it; rank 0
/// prints.
int bench_checkpoint(const Settings& settings, const launch::RankEnvironment& environment, const std::string& command);
/// Removes what bench_checkpoint() has written, for a process that ends in the middle of it: other threads and ranks
/// may still write.
void remove_checkpoint_folder(const Settings& settings, const launch::RankEnvironment& environment);

/// Times the batch loader alone, and compares its tokens per second with those that a training step consumes.
int bench_data(const Settings& settings, const std::string& command);

/// Runs `bench train` as a child process, once for each number of ranks. Each child reads `given`, the settings that
/// were given, as YAML.
int bench_scaling(const Settings& settings, const std::string& given, const std::string& command);

/// Measures what operations and collectives take here, in training steps of small models of several shapes, and writes
/// the hardware file that predictions read.
/// Cost      about a minute and a half on two cores
int bench_calibrate(const Settings& settings);

/// Prints the table, and writes bench.json if it is given.
void deliver(const Report& report, const Settings& settings);

/// Sets LibTorch's number of threads to bench.threads, or 1, and returns it.
int use_threads(const Settings& settings);

}  // namespace trireme::bench
