// The loop of both examples: global batches of kMicroBatches micro-batches, AdamW, a learning rate that warms up and
// decays to zero.
#pragma once

#include <algorithm>
#include <cstdio>
#include <functional>

#include "launched.h"
#include "trireme/base/error.h"

namespace parallel_example {

constexpr int kMicroBatches = 4;  ///< of a step, over all ranks

struct Loop {
  int steps;
  double learning_rate;
  std::function<trireme::model::Example(int64_t number)> batch;
};

inline double rate_at(const Loop& loop, int step) {
  const double warm = 20;
  return loop.learning_rate * std::min((step + 1) / warm, (loop.steps - step) / (loop.steps - warm));
}

/// Errors    Error if the data-parallel ranks cannot share the micro-batches
inline int accumulation(const trireme::TrainerOptions& options) {
  const int data_ranks = options.mesh.replicate * options.mesh.shard;
  if (kMicroBatches % data_ranks != 0)
    throw trireme::UsageError(std::to_string(data_ranks) + " data-parallel ranks cannot share " +
                              std::to_string(kMicroBatches) + " micro-batches; use 1, 2 or 4");
  return kMicroBatches / data_ranks;
}

inline void train(trireme::Trainer& trainer, const Loop& loop, bool speaks) {
  for (int step = 0; step < loop.steps; ++step) {
    for (int i = 0; i < trainer.micro_batches(); ++i) {
      // Micro-batch i of the global batch goes to data rank i % n, so that any number of ranks adds up alike.
      const int64_t number = int64_t(step) * kMicroBatches + i * trainer.num_data_ranks() + trainer.data_index();
      const auto batch = loop.batch(number);
      trainer.backward(batch.inputs, batch.targets);
    }
    const double loss = trainer.step(rate_at(loop, step)).loss;
    if (speaks && (step % 20 == 0 || step + 1 == loop.steps)) std::printf("step %3d  loss %.4f\n", step, loss);
  }
}

}  // namespace parallel_example
