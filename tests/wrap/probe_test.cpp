// What build_model finds out about modules in one run of them, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "support.h"
#include "trireme/base/error.h"

namespace trireme::engine {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using testing::HasSubstr;

const model::Example kIds{torch::zeros({4}, torch::kLong), torch::ones({4}, torch::kLong)};
const model::Example kNumbers{torch::ones({4, 3}), torch::zeros({4, 3})};

TEST(Probe, RefusesAnExampleWithoutValues) {
  for (const bool inputs : {true, false})
    EXPECT_THAT(message_of<UsageError>([&] {
                  build_model(
                      {wrap_loss("last", nn::Linear(3, 3), square_loss)},
                      inputs ? model::Example{{}, torch::ones({4, 3})} : model::Example{torch::ones({4, 3}), {}});
                }),
                HasSubstr(inputs ? "[wrap] the example's inputs are a tensor without values"
                                 : "[wrap] the example's targets are a tensor without values"));
}

TEST(Probe, RefusesAParameterOfAnotherPartThatAModuleDoesNotRegister) {
  const std::string refusal =
      "[wrap] 'h' computes with the parameter 'e.weight' of another part, which it does not register; register that "
      "module in 'h' too (register_module), or, if it reads a value that the other part computed, let that part give "
      "it as a part of its output";
  nn::Embedding table(5, 3);
  const auto tied_loss = [table](const at::Tensor& y, const at::Tensor& targets) {
    return own_model::cross_entropy(F::linear(y, table->weight), targets);
  };
  EXPECT_EQ(message_of<UsageError>([&] {
              build_model({wrap("e", table), wrap_loss("h", nn::LayerNorm(nn::LayerNormOptions({3})), tied_loss)},
                          kIds);
            }),
            refusal);
  nn::Embedding other(5, 3);
  nn::Linear decoder(nn::LinearOptions(3, 5).bias(false));
  decoder->weight = other->weight;  // the module has registered what it had before
  EXPECT_EQ(message_of<UsageError>(
                [&] { build_model({wrap("e", other), wrap_loss("h", decoder, own_model::cross_entropy)}, kIds); }),
            refusal);
  nn::Linear later(3, 3);  // of a part that comes after the one that uses it
  nn::Sequential first(nn::Functional([later](const at::Tensor& x) { return F::linear(x, later->weight); }));
  EXPECT_THAT(
      message_of<UsageError>([&] { build_model({wrap("a", first), wrap_loss("b", later, square_loss)}, kNumbers); }),
      HasSubstr("'a' computes with the parameter 'b.weight' of another part"));
}

TEST(Probe, RefusesATensorOfNoPartThatRequiresGradients) {
  const at::Tensor scale = torch::ones({3}, torch::requires_grad());
  const auto loss = [scale](const at::Tensor& y, const at::Tensor& t) { return square_loss(y * scale, t); };
  EXPECT_THAT(
      message_of<UsageError>([&] { build_model({wrap_loss("h", nn::Linear(3, 3), loss)}, kNumbers); }),
      HasSubstr("'h' computes with a tensor of shape [3] that requires gradients and is a parameter of no part"));
  const auto inner = [](const at::Tensor& y, const at::Tensor& t) {  // one that a forward makes is its own affair
    const at::Tensor at_point = y.detach().requires_grad_();
    const at::Tensor slope =
        torch::autograd::grad({at_point.pow(3).sum()}, {at_point}, {}, std::nullopt, /*create_graph=*/true)[0];
    return square_loss(y + slope, t);
  };
  EXPECT_EQ(build_model({wrap_loss("h", nn::Linear(3, 3), inner)}, kNumbers).units.size(), 1U);
}

TEST(Probe, RefusesTwoParametersInOneMemory) {
  nn::Linear first(3, 3), last(3, 3);
  last->weight.set_data(first->weight.detach());
  EXPECT_THAT(
      message_of<UsageError>([&] { build_model({wrap("a", first), wrap_loss("b", last, square_loss)}, kNumbers); }),
      HasSubstr("'b.weight' and 'a.weight' are two tensors in one memory"));
}

struct SpectralImpl : nn::Module {
  SpectralImpl() { weight = register_parameter("weight", torch::complex(torch::ones({3, 3}), torch::ones({3, 3}))); }
  at::Tensor forward(const at::Tensor& x) { return at::real(at::matmul(x.to(at::kComplexFloat), weight)); }
  at::Tensor weight;
};
TORCH_MODULE(Spectral);

TEST(Probe, RefusesComplexParametersWhoseImaginaryPartWouldBeLost) {
  EXPECT_THAT(message_of<UsageError>([] { build_model({wrap_loss("h", Spectral(), square_loss)}, kNumbers); }),
              HasSubstr("the parameter 'h.weight' is ComplexFloat, and parameters are real numbers"));
}

TEST(Probe, RefusesModulesThatChangeAfterTheyWereWrapped) {
  nn::Linear first(3, 3), last(3, 3);
  first->bias.set_requires_grad(false);
  Trainer trainer(build_model({wrap("first", first), wrap_loss("last", last, square_loss)}, kNumbers), {});
  const auto step = [&] {
    trainer.backward(kNumbers.inputs, kNumbers.targets);
    trainer.step(1e-2);
  };
  step();
  last->weight.set_requires_grad(false);
  EXPECT_THAT(message_of<UsageError>(step),
              HasSubstr("'last.weight' no longer requires gradients, and did when its module was wrapped"));
  last->weight.set_requires_grad(true);
  first->bias.set_requires_grad(true);
  EXPECT_THAT(message_of<UsageError>(step),
              HasSubstr("'first.bias' now requires gradients, and did not when its module was wrapped"));
  first->bias.set_requires_grad(false);
  step();
  trainer.store();
  last->to(torch::kDouble);
  EXPECT_THAT(message_of<UsageError>(step), HasSubstr("is Double of shape [3, 3] now, and was Float"));
}

struct PartlyUsedImpl : nn::Module {
  PartlyUsedImpl() {
    used = register_module("used", nn::Linear(3, 3));
    unused = register_module("unused", nn::Linear(3, 3));
    still = register_module("still", nn::Linear(3, 3));
    for (at::Tensor& p : still->parameters()) p.set_requires_grad(false);
  }
  at::Tensor forward(const at::Tensor& x) { return used(x); }
  nn::Linear used{nullptr}, unused{nullptr}, still{nullptr};
};
TORCH_MODULE(PartlyUsed);

TEST(Probe, NamesParametersThatNoLossReaches) {
  PartlyUsed first;
  const auto build = [&] { return build_model({wrap("a", first), wrap_loss(square_loss)}, kNumbers); };
  EXPECT_THAT(build().unreached, testing::ElementsAre("a.unused.weight", "a.unused.bias"));
  testing::internal::CaptureStderr();
  Trainer trainer(build(), {});
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("no loss of the example reaches a.unused.weight, a.unused.bias: without a gradient"));
}

// Losses of three steps, with two micro-batches each.
std::vector<double> losses_of(Trainer& trainer, const model::Example& batch) {
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < 2; ++i) trainer.backward(batch.inputs, batch.targets);
    losses.push_back(trainer.step(1e-2).loss);
  }
  return losses;
}

constexpr schedule::Recompute kModes[] = {schedule::Recompute::none, schedule::Recompute::full};

struct CenteredImpl : nn::Module {
  CenteredImpl() {
    layer = register_module("layer", nn::Linear(3, 3));
    scale = register_parameter("scale", torch::full({3}, 3.0));
  }
  at::Tensor forward(const at::Tensor& x) { return layer(x.sub_(0.5).mul_(scale)); }
  nn::Linear layer{nullptr};
  at::Tensor scale;
};
TORCH_MODULE(Centered);

TEST(Probe, APartMayChangeItsInputInPlaceAlsoWithRecomputation) {
  std::vector<std::vector<double>> losses;
  for (const auto mode : kModes) {
    torch::manual_seed(4);
    model::Example example{torch::ones({4, 3}), torch::ones({4, 3})};
    const auto loss = [](const at::Tensor& y, const at::Tensor& t) { return square_loss(y, at::Tensor(t).mul_(0.5)); };
    Trainer trainer(build_model({wrap("first", Centered()), wrap_loss("last", nn::Linear(3, 3), loss)}, example),
                    {.recompute = {.mode = mode}, .accumulate = 2});
    EXPECT_TRUE(at::equal(example.inputs, torch::ones({4, 3})));
    EXPECT_TRUE(at::equal(example.targets, torch::ones({4, 3})));
    losses.push_back(losses_of(trainer, example));
    EXPECT_TRUE(at::equal(example.inputs, torch::ones({4, 3})));
  }
  EXPECT_EQ(losses[0], losses[1]);
}

TEST(Probe, RecomputationCountsAMicroBatchOnceInTheStatisticsOfBatchNorm) {
  std::vector<at::Tensor> means, variances, counts;
  std::vector<std::vector<double>> losses;
  const model::Example batch{own_model::numbers(1, {4, 3}), torch::zeros({4, 3})};
  for (const auto mode : kModes) {
    torch::manual_seed(4);
    nn::BatchNorm1d norm(3);
    Trainer trainer(build_model({wrap("first", nn::Sequential(nn::Linear(3, 3), norm, nn::Tanh())),
                                 wrap_loss("last", nn::Linear(3, 3), square_loss)},
                                batch),
                    {.recompute = {.mode = mode}, .accumulate = 2});
    losses.push_back(losses_of(trainer, batch));
    means.push_back(norm->running_mean.clone());
    variances.push_back(norm->running_var.clone());
    counts.push_back(norm->num_batches_tracked.clone());
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(counts[0].item<int64_t>(), 6);
  EXPECT_TRUE(at::equal(counts[0], counts[1]));
  EXPECT_TRUE(at::equal(means[0], means[1]));
  EXPECT_TRUE(at::equal(variances[0], variances[1]));
}

TEST(Probe, DropoutThatBeginsAfterTheModelWasBuiltIsRecomputedWithItsMasks) {
  std::vector<std::vector<double>> losses;
  for (const auto mode : kModes) {
    torch::manual_seed(4);
    nn::Dropout dropout(0);
    Trainer trainer(build_model({wrap("first", nn::Sequential(nn::Linear(3, 64), nn::Tanh(), dropout)),
                                 wrap_loss("last", nn::Linear(64, 3), square_loss)},
                                kNumbers),
                    {.recompute = {.mode = mode}, .accumulate = 2});
    dropout->options.p(0.5);
    losses.push_back(losses_of(trainer, kNumbers));
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_NE(losses[0][0], losses[0][1]);
}

TEST(Probe, ModulesKeepTheirModeInTrainingAndAfterAnEvaluation) {
  nn::BatchNorm1d still(3), moving(3);
  nn::Sequential first(nn::Linear(3, 3), still, moving);
  nn::Linear last(3, 3);
  still->eval();
  Trainer trainer(build_model({wrap("first", first), wrap("same", first), wrap_loss("last", last, square_loss)},
                              {own_model::numbers(1, {4, 3}), torch::zeros({4, 3})}),
                  {});
  const at::Tensor before = still->running_mean.clone();
  trainer.backward(own_model::numbers(1, {4, 3}), torch::zeros({4, 3}));
  trainer.step(1e-2);
  EXPECT_TRUE(at::equal(still->running_mean, before));
  EXPECT_FALSE(at::equal(moving->running_mean, before));
  last->eval();
  trainer.evaluate(own_model::numbers(1, {4, 3}), torch::zeros({4, 3}));
  EXPECT_FALSE(still->is_training());
  EXPECT_TRUE(moving->is_training());
  EXPECT_TRUE(first->is_training());
  EXPECT_FALSE(last->is_training());
}

}  // namespace
}  // namespace trireme::engine
