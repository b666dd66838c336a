// A transformer whose layers mesh.tp divides learns to say letters backwards.
//
//     cmake -S examples/transformer_layer -B build/transformer_layer -DCMAKE_PREFIX_PATH=$HOME/trireme-installed
//     cmake --build build/transformer_layer && cd build/transformer_layer
//     ./transformer_layer                                                                      one rank
//     trireme launch --nproc_per_node 2 -- ./transformer_layer --mesh.tp 2
//     trireme launch --nproc_per_node 4 -- ./transformer_layer --mesh.tp 2 --mesh.sequence_parallel true
//
// own_model says how to install Trireme. The last has two tensor-parallel ranks in each of two shards (FSDP). All print
// the loss, which is the same but for rounding, and last: 100 % of the letters of new sequences are right
#include "model.h"

#include "training.h"

namespace {

constexpr int64_t kSequences = 16;  // of a micro-batch

void run(parallel_example::Launched& launched) {
  using parallel_example::accumulation, parallel_example::Backwards, parallel_example::backwards_batch,
      parallel_example::kWidth, parallel_example::train;
  trireme::TrainerOptions& options = launched.options;
  options.accumulate = accumulation(options);
  options.max_norm = 1.0;
  options.count = [](const torch::Tensor& targets) { return targets.numel(); };
  const auto batch = [](int64_t number) { return backwards_batch(number, kSequences); };

  torch::manual_seed(1);  // on every rank: each keeps its part of the same weights
  const auto ranks = trireme::tensor_ranks(options);
  Backwards model(ranks);
  trireme::Trainer trainer(trireme::build_model(model.parts(), batch(0), {}, ranks->parallel()), options);
  if (launched.speaks())
    std::printf("a matrix of the MLP on each of tp=%d ranks: [%ld, %ld] of [%ld, %ld]\n", ranks->size(),
                long(model.layers[0]->up->weight.size(0)), long(kWidth), long(4 * kWidth), long(kWidth));
  train(trainer, {.steps = 200, .learning_rate = 3e-3, .batch = batch}, launched.speaks());

  trainer.store();  // the modules have their weights again, and run by themselves
  const torch::NoGradGuard no_grad;
  ranks->connect(trainer.engine().communicators().inside[trireme::comm::UnitAxis::tp]);
  const auto unseen = backwards_batch(1'000'000, 256);
  const double right = model.say(unseen.inputs).eq(unseen.targets).to(torch::kDouble).mean().item<double>();
  if (launched.speaks()) std::printf("%.0f %% of the letters of new sequences are right\n", 100 * right);
}

}  // namespace

int main(int argc, char** argv) try {
  parallel_example::Launched launched(argc, argv);
  run(launched);
} catch (const std::exception& error) {
  trireme::train::report_failure(error);  // trireme launch names the rank that failed first
  std::fprintf(stderr, "transformer_layer: %s\n", error.what());
  return 1;
}
