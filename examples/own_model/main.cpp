// Your own LibTorch modules, trained by Trireme on one rank and on two that shard everything (here threads of this
// process): the modules are in models.h, and the losses are the same.
//
//     make install PREFIX=$HOME/trireme-installed
//     cmake -S examples/own_model -B build/own_model -DCMAKE_PREFIX_PATH=$HOME/trireme-installed
//     cmake --build build/own_model && build/own_model/own_model
//
// prints three lines like: mlp: loss 3.4511 -> 0.2773 in 12 steps; two ranks give the same
#include "models.h"

#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <cmath>
#include <cstdio>
#include <thread>

#include "trireme/engine/trainer.h"

using own_model::Task;

constexpr int kSteps = 12, kMicroBatches = 4;  // of all ranks

std::vector<double> train_rank(const Task& task, int rank, int ranks, c10::intrusive_ptr<c10d::Store> store) {
  at::set_num_threads(1);
  trireme::Trainer trainer(
      own_model::make_model(task),
      {.ranks = {.backend = ranks > 1 ? "threads" : "auto", .rank = rank, .size = ranks, .store = std::move(store)},
       .strategy = trireme::plan::Strategy::full_shard,
       .accumulate = kMicroBatches / ranks});
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    for (int i = 0; i < trainer.micro_batches(); ++i) {
      // Micro-batch i of the global batch goes to rank i % ranks, so that any number of ranks adds up alike.
      const auto batch = task.batch(i * trainer.num_data_ranks() + trainer.data_index());
      trainer.backward(batch.inputs, batch.targets);
    }
    losses.push_back(trainer.step(1e-2).loss);
  }
  return losses;
}

std::vector<double> train(const Task& task, int ranks) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::vector<double>> losses(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back([&, r] { losses[r] = train_rank(task, r, ranks, store); });
  for (std::thread& t : threads) t.join();
  return losses[0];
}

int main() {
  for (const Task& task : own_model::tasks()) {
    const std::vector<double> one = train(task, 1), two = train(task, 2);
    const bool same = one == two, learns = one.back() < 0.9 * one.front();
    std::printf("%s: loss %.4f -> %.4f in %d steps; two ranks give %s\n", task.name, one.front(), one.back(), kSteps,
                same ? "the same" : "something else");
    if (!same || !learns) return 1;
  }
}
