// What wrap() promises beside parity: refusals in words, tied and frozen parameters, dropout, memory, plain modules
// before and after.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <ATen/Parallel.h>

#include "support.h"
#include "trireme/base/error.h"
#include "trireme/model/wrapped_unit.h"

namespace trireme::engine {
namespace {

namespace nn = torch::nn;
using testing::HasSubstr;

const model::Example kExample{torch::ones({4, 3}), torch::zeros({4, 3})};

std::vector<Wrapped> two_layers() {
  std::vector<Wrapped> parts;
  parts.push_back(wrap("first", nn::Linear(3, 5)));
  parts.push_back(wrap_loss("last", nn::Linear(5, 3), square_loss));
  return parts;
}

TEST(Wrap, RefusesContextParallelRanks) {
  EXPECT_THAT(message_of<UsageError>([] { build_model(two_layers(), kExample, {}, {.cp_size = 2}); }),
              HasSubstr("a wrapped module has whole sequences: cp=2 must be 1"));
  EXPECT_THAT(message_of<UsageError>([] {
                Trainer(build_model(two_layers(), kExample),
                        {.ranks = {.rank = 0, .size = 2}, .mesh = {.shard = 1, .cp = 2}});
              }),
              HasSubstr("a wrapped module has whole sequences: cp=2 must be 1"));
}

TEST(Wrap, RefusesPartsThatMakeNoModel) {
  EXPECT_THAT(message_of<UsageError>([] { build_model({}, kExample); }), HasSubstr("at least one part"));
  EXPECT_THAT(message_of<UsageError>([] { build_model({wrap("only", nn::Linear(3, 3))}, kExample); }),
              HasSubstr("the last part, 'only', has no loss; make it with wrap_loss"));
  EXPECT_THAT(message_of<UsageError>([] { build_model({wrap_loss(square_loss), wrap_loss(square_loss)}, kExample); }),
              HasSubstr("has a loss but is not the last part"));
  EXPECT_THAT(message_of<UsageError>([] {
                build_model({wrap("a", nn::Linear(3, 3)), wrap("a", nn::Linear(3, 3)), wrap_loss(square_loss)},
                            kExample);
              }),
              HasSubstr("two parts are named 'a'"));
  EXPECT_THAT(
      message_of<ShapeError>([] { build_model({wrap("first", nn::Linear(7, 3)), wrap_loss(square_loss)}, kExample); }),
      HasSubstr("'first' cannot run on an input of shape [4, 3], Float"));
  const auto mean = [](const at::Tensor& y, const at::Tensor&) { return y; };
  EXPECT_THAT(
      message_of<ShapeError>([&] { build_model({wrap("first", nn::Linear(3, 3)), wrap_loss(mean)}, kExample); }),
      HasSubstr("the loss of 'loss' has shape [4, 3]; it must be one number"));
}

TEST(Wrap, RefusesAnotherPrecisionThanTheModels) {
  EXPECT_THAT(message_of<UsageError>(
                  [] { Trainer(build_model(two_layers(), kExample), {.precision = {at::kDouble, at::kDouble}}); }),
              HasSubstr("'first' was built for Float, the step asks for Double"));
}

TEST(Trainer, RefusesToClipWhatItStepsInsideTheBackwardPass) {
  EXPECT_THAT(message_of<UsageError>(
                  [] { Trainer(build_model(two_layers(), kExample), {.steps_in_backward = true, .max_norm = 1.0}); }),
              HasSubstr("updates weights before the norm of all gradients is known"));
}

TEST(Trainer, RefusesTheWrongNumberOrShapeOfMicroBatches) {
  Trainer trainer(build_model(two_layers(), kExample), {.accumulate = 2});
  EXPECT_THAT(message_of<ShapeError>([&] { trainer.backward(torch::ones({5, 3}), kExample.targets); }),
              HasSubstr("inputs of shape [5, 3]; the model was built with an example of shape [4, 3]"));
  trainer.backward(kExample.inputs, kExample.targets);
  EXPECT_THAT(message_of<UsageError>([&] { trainer.step(1e-3); }), HasSubstr("step after 1 of accumulate=2"));
  trainer.backward(kExample.inputs, kExample.targets);
  EXPECT_THAT(message_of<UsageError>([&] { trainer.backward(kExample.inputs, kExample.targets); }),
              HasSubstr("more than accumulate=2 times"));
  EXPECT_GT(trainer.step(1e-3).loss, 0);
  EXPECT_THAT(message_of<UsageError>([&] { load_parameters(trainer.engine()); }), HasSubstr("loaded before and freed"));
}

TEST(Wrap, TrainingStartsFromTheModulesValuesAndStoreGivesThemBack) {
  torch::manual_seed(3);
  nn::Linear first(3, 5), last(5, 3);
  const at::Tensor before = first->weight.detach().clone(), x = kExample.inputs;
  const double plain = square_loss(last(first(x)), kExample.targets).item<double>() / 4;
  at::Tensor after, weight;
  {
    Trainer trainer(build_model({wrap("first", first), wrap_loss("last", last, square_loss)}, kExample), {});
    EXPECT_TRUE(at::equal(trainer.parameters()[0].tensor, before));
    trainer.backward(x, kExample.targets);
    EXPECT_NEAR(trainer.step(1e-2).loss, plain, 1e-5);
    trainer.store();
    weight = trainer.parameters()[0].tensor;
    after = last(first(x)).detach();
    EXPECT_NEAR(trainer.evaluate(x, kExample.targets), square_loss(after, kExample.targets).item<double>() / 4, 1e-5);
    trainer.store();  // evaluation bound them to planned memory again
  }
  EXPECT_FALSE(at::equal(first->weight, before));
  EXPECT_TRUE(at::equal(first->weight, weight));       // the engine's memory is gone, the modules are whole
  EXPECT_TRUE(at::equal(last(first(x)), after));
}

// A product with a matrix that another part has too, and a frozen shift.
struct ProductImpl : nn::Module {
  ProductImpl(const at::Tensor& matrix, bool transposed) : transposed_(transposed) {
    weight = register_parameter("weight", matrix);
    shift = register_parameter("shift", torch::full({3}, 0.25), /*requires_grad=*/false);
  }
  at::Tensor forward(const at::Tensor& x) { return x.mm(transposed_ ? weight.t() : weight) + shift; }
  at::Tensor weight, shift;
  bool transposed_;
};
TORCH_MODULE(Product);

TEST(Wrap, TiedParametersSumTheirGradientsAndFrozenOnesStay) {
  const at::Tensor start = own_model::numbers(1, {3, 3}), x = own_model::numbers(2, {4, 3});
  at::Tensor w = start.to(at::kDouble).requires_grad_();
  const at::Tensor y = x.to(at::kDouble).mm(w) + 0.25, z = y.mm(w.t()) + 0.25;
  const at::Tensor gradient = torch::autograd::grad({square_loss(z, kExample.targets) / 4.0}, {w})[0];
  for (const comm::MeshSizes& mesh :
       {comm::MeshSizes{.shard = 1}, comm::MeshSizes{.shard = 2}, comm::MeshSizes{.pp = 2, .shard = 1}})
    on_threads(mesh.pp * mesh.shard, [&](int, const comm::GroupOptions& ranks) {
      const at::Tensor matrix = start.clone();
      Product first(matrix, false), last(matrix, true);
      const model::Precision precision{at::kDouble, at::kDouble};
      Trainer trainer(
          build_model({wrap("first", first), wrap_loss("last", last, square_loss)}, {x, kExample.targets}, precision),
          {.ranks = ranks, .mesh = mesh, .precision = precision, .poison = true});
      ASSERT_EQ(trainer.parameters().size(), 1U);
      EXPECT_EQ(trainer.parameters()[0].name, "first.weight");
      trainer.backward(x, kExample.targets);  // two ranks of data hand over the same: the mean is that of one
      EXPECT_NEAR(trainer.step(1e-3).gradient_norm, gradient.norm().item<double>(), 1e-12);
      EXPECT_TRUE(at::equal(last->shift, torch::full({3}, 0.25, at::kDouble)));
    });
}

std::vector<Wrapped> with_dropout() {
  at::set_num_threads(1);
  torch::manual_seed(5);
  std::vector<Wrapped> parts;
  parts.push_back(wrap("first", nn::Sequential(nn::Linear(3, 64), nn::Tanh(), nn::Dropout(0.5))));
  parts.push_back(wrap("second", nn::Sequential(nn::Linear(64, 64), nn::Tanh(), nn::Dropout(0.5))));
  parts.push_back(wrap_loss("last", nn::Linear(64, 3), square_loss));
  return parts;
}

TEST(Wrap, RecomputationDrawsTheSameRandomNumbersAndEvaluationNone) {
  std::vector<std::vector<double>> losses;
  for (const auto mode : {schedule::Recompute::none, schedule::Recompute::full}) {
    Trainer trainer(build_model(with_dropout(), kExample), {.recompute = {.mode = mode}, .accumulate = 2});
    losses.emplace_back();
    for (int step = 0; step < 3; ++step) {
      for (int i = 0; i < 2; ++i) trainer.backward(kExample.inputs, kExample.targets);
      losses.back().push_back(trainer.step(1e-2).loss);
    }
    const double evaluation = trainer.evaluate(kExample.inputs, kExample.targets);
    EXPECT_EQ(trainer.evaluate(kExample.inputs, kExample.targets), evaluation);
    losses.back().push_back(evaluation);
  }
  EXPECT_EQ(losses[0], losses[1]);
}

TEST(Wrap, BuildingAModelLeavesBuffersAndTheRandomStateAsTheyWere) {
  nn::Sequential normed(nn::Linear(3, 3), nn::BatchNorm1d(3));
  auto parts = with_dropout();
  parts.insert(parts.begin(), wrap("normed", normed));
  torch::manual_seed(9);
  const at::Tensor expected = torch::rand({3});
  torch::manual_seed(9);
  const model::Model model = build_model(std::move(parts), kExample);
  EXPECT_TRUE(at::equal(torch::rand({3}), expected));
  EXPECT_EQ(normed->named_buffers()["1.running_mean"].abs().sum().item<float>(), 0);
  EXPECT_EQ(normed->named_buffers()["1.num_batches_tracked"].item<int64_t>(), 0);
}

// The allowance is a bound on what LibTorch allocates during a step, and not a loose one.
TEST(Wrap, TheAllowanceIsWhatAutogradTakes) {
  using Mode = schedule::Recompute;
  std::vector<int64_t> allowances;
  for (const Mode mode : {Mode::none, Mode::full}) {
    const model::Example batch{torch::ones({512, 3}), torch::zeros({512, 3})};
    Trainer trainer(build_model(with_dropout(), batch), {.recompute = {.mode = mode}, .accumulate = 2});
    for (int i = 0; i < 2; ++i) trainer.backward(batch.inputs, batch.targets);
    const model::AllocationWatch watch;
    trainer.step(1e-3);
    const int64_t allowance = autograd_allowance(trainer.engine().plan());
    EXPECT_LE(watch.peak(), allowance);
    EXPECT_GE(watch.peak(), allowance / 2);
    EXPECT_THAT(trainer.describe_memory(), HasSubstr("allowance for autograd"));
    allowances.push_back(allowance);
  }
  EXPECT_LT(allowances[1], allowances[0]);
}

}  // namespace
}  // namespace trireme::engine
