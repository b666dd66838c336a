// The subcommands of `trireme bench`, one row each: what it measures, how it is called, what --help teaches.
#pragma once

#include <span>

#include "trireme/cli/command.h"

namespace trireme::cli {

struct BenchTopic {
  const char* name;
  const char* help;     ///< one line
  const char* example;  ///< a command to try
  const char* lesson;   ///< what is measured against what, by which formulas; ends with a line end
  int (*run)(Arguments arguments);  ///< everything after the topic's name
};

std::span<const BenchTopic> bench_topics();

/// bench_jobs.cpp
int run_bench_train(Arguments arguments);
int run_bench_ops(Arguments arguments);
int run_bench_gemm(Arguments arguments);
int run_bench_collectives(Arguments arguments);
int run_bench_checkpoint(Arguments arguments);
int run_bench_data(Arguments arguments);
int run_bench_scaling(Arguments arguments);
int run_bench_compare(Arguments arguments);

}  // namespace trireme::cli
