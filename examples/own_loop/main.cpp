// An own training loop: own data (points on two spirals), own loss, own learning-rate rule; Trireme shards, steps and
// says what takes the time.
//
//     cmake -S examples/own_loop -B build/own_loop -DCMAKE_PREFIX_PATH=$HOME/trireme-installed   (see own_model)
//     cmake --build build/own_loop && build/own_loop/own_loop
//
// prints what ten steps take, the loss every 100 steps, and last: 2 ranks put at least 95 % of the points on their
// spiral
#include <torch/nn.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <cmath>
#include <cstdio>
#include <mutex>
#include <thread>

#include "trireme/engine/trainer.h"
#include "trireme/observe/profile.h"

namespace nn = torch::nn;
constexpr int kRanks = 2, kSteps = 600;

// Own data: 64 points, and on which of two spirals each one lies.
trireme::model::Example spirals(int64_t number) {
  const torch::Tensor n = torch::arange(64 * number, 64 * (number + 1), torch::kDouble), arm = n % 2;
  const torch::Tensor radius = torch::frac(n * 0.618034), angle = 6 * radius + M_PI * arm;
  return {torch::stack({radius * angle.cos(), radius * angle.sin()}, 1).to(torch::kFloat), arm.to(torch::kFloat)};
}

// Own loss: hinge, squared.
torch::Tensor loss(const torch::Tensor& score, const torch::Tensor& arm) {
  return torch::relu(1 - score.squeeze(1) * (2 * arm - 1)).square().sum();
}

// Ranks that are threads share LibTorch's random generator: one builds at a time, from the same seed.
trireme::model::Model built(nn::Sequential& net, nn::Linear& head) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(1);
  net = nn::Sequential(nn::Linear(2, 64), nn::Tanh(), nn::Linear(64, 64), nn::Tanh());
  head = nn::Linear(64, 1);
  return trireme::build_model({trireme::wrap("net", net), trireme::wrap_loss("head", head, loss)}, spirals(0));
}

void rank(int rank, c10::intrusive_ptr<c10d::Store> store) {
  nn::Sequential net{nullptr};
  nn::Linear head{nullptr};
  trireme::Trainer trainer(built(net, head),
                           {.ranks = {.backend = "threads", .rank = rank, .size = kRanks, .store = store},
                            .accumulate = 2,
                            .max_norm = 1.0});
  trireme::observe::Profile profile(trainer.model(), trainer.engine(), {.run = {.samples_per_step = 64 * 2 * kRanks}});
  for (int step = 0; step < kSteps; ++step) {
    profile.begin_step(step + 1);
    for (int i = 0; i < trainer.micro_batches(); ++i) {
      const trireme::base::Metered data(trireme::base::Activity::data);
      const auto [points, arm] = spirals((step * trainer.micro_batches() + i) * kRanks + rank);
      trainer.backward(points, arm);
    }
    const double mean = trainer.step(1e-2 * (1 - double(step) / kSteps)).loss;
    profile.end_step();
    if (profile.is_complete()) std::fputs(profile.report().c_str(), stdout);
    if (rank == 0 && step % 100 == 0) std::printf("step %3d: loss %.3f\n", step, mean);
  }
  trainer.store();  // the modules have their weights again: plain LibTorch
  const auto [points, arm] = spirals(100'000);
  const double right =
      head->forward(net->forward(points)).squeeze(1).gt(0).eq(arm.gt(0)).to(torch::kDouble).mean().item<double>();
  if (rank == 0)
    std::printf("%d ranks put %s of the points on their spiral\n", kRanks, right > 0.95 ? "at least 95 %" : "too few");
}

int main() {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::jthread other(rank, 1, store);
  rank(0, store);
}
