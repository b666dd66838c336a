// Runs a small model for some steps on any number of thread ranks and brings back what it ended with.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "trireme/engine/engine.h"

namespace trireme::engine {

struct Job {
  model::ModelConfig model;
  model::Precision precision;
  int ranks = 1;
  bool shard = false;
  std::string backend = "threads";     ///< threads or gloo
  int global_micro_batches = 4;
  int steps = 3;
  schedule::Recompute recompute = schedule::Recompute::none;
  int prefetch = 1, reduce_lag = 1;
  bool poison = false;
  model::BatchShape shape{2, 16};
};

struct Outcome {
  std::vector<double> losses, norms;
  double evaluation = 0;
  at::Tensor parameters;   ///< all masters, unsharded and joined, float64
  at::Tensor gradients;    ///< of the last step, likewise
};

model::ModelConfig small_llama();
model::ModelConfig small_gpt2();

/// A micro-batch that depends on (step, number in the global batch) alone.
void fill_micro_batch(int64_t step, int64_t number, int64_t vocabulary, const at::Tensor& tokens,
                      const at::Tensor& targets);

Outcome run(const Job& job);

/// ||a - b|| / ||b||
double relative_distance(const at::Tensor& a, const at::Tensor& b);

}  // namespace trireme::engine
