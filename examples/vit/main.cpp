// A vision transformer learns to tell five kinds of patterns apart, on any mesh.
//
//     cmake -S examples/vit -B build/vit -DCMAKE_PREFIX_PATH=$HOME/trireme-installed   (see own_model)
//     cmake --build build/vit && cd build/vit
//     ./vit                                                                            one rank
//     trireme launch --nproc_per_node 2 -- ./vit --strategy no_shard                   DDP
//     trireme launch --nproc_per_node 2 -- ./vit                                       FSDP
//     trireme launch --nproc_per_node 2 -- ./vit --mesh.tp 2 --mesh.sequence_parallel true
//
// All print the loss, which is the same but for rounding, and last: 100 % of 1000 new images are right
#include "images.h"

#include "../transformer_layer/training.h"

namespace {

constexpr int64_t kImages = 16;  // of a micro-batch

void run(parallel_example::Launched& launched) {
  using parallel_example::accumulation, parallel_example::image_batch, parallel_example::train, parallel_example::Vit;
  trireme::TrainerOptions& options = launched.options;
  options.accumulate = accumulation(options);
  options.max_norm = 1.0;
  const auto batch = [](int64_t number) { return image_batch(number, kImages); };

  torch::manual_seed(1);  // on every rank: each keeps its part of the same weights
  const auto ranks = trireme::tensor_ranks(options);
  Vit model(ranks);
  trireme::Trainer trainer(trireme::build_model(model.parts(), batch(0), {}, ranks->parallel()), options);
  train(trainer, {.steps = 120, .learning_rate = 2e-3, .batch = batch}, launched.speaks());

  trainer.store();  // the modules have their weights again, and run by themselves
  const torch::NoGradGuard no_grad;
  ranks->connect(trainer.engine().communicators().inside[trireme::comm::UnitAxis::tp]);
  const auto unseen = image_batch(1'000'000, 1000);
  const double right =
      model.scores(unseen.inputs).argmax(1).eq(unseen.targets).to(torch::kDouble).mean().item<double>();
  if (launched.speaks()) std::printf("%.0f %% of 1000 new images are right\n", 100 * right);
}

}  // namespace

int main(int argc, char** argv) try {
  parallel_example::Launched launched(argc, argv);
  run(launched);
} catch (const std::exception& error) {
  trireme::train::report_failure(error);  // trireme launch names the rank that failed first
  std::fprintf(stderr, "vit: %s\n", error.what());
  return 1;
}
