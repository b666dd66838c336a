// What wrap() promises beside parity: refusals in words, tied and frozen parameters, dropout, memory, plain modules
// before and after.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <ATen/Parallel.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "support.h"
#include "trireme/base/error.h"
#include "trireme/model/wrapped_unit.h"
#include "trireme/train/trainer_checkpoint.h"

namespace trireme::engine {
namespace {

namespace nn = torch::nn;
using testing::HasSubstr;

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
  EXPECT_THAT(message_of<UsageError>([] {
                build_model({wrap("a", nn::Sequential(nn::Linear(3, 3))), wrap("a.0", nn::Linear(3, 3)),
                             wrap_loss(square_loss)},
                            kExample);
              }),
              HasSubstr("two parameters are named 'a.0.weight'"));
  EXPECT_THAT(message_of<UsageError>([] {
                build_model({wrap("a", nn::Linear(3, 3)), wrap("a.bias", nn::Linear(3, 3)), wrap_loss(square_loss)},
                            kExample);
              }),
              HasSubstr("the parameter 'a.bias' has the name of a module, that of 'a.bias.bias'"));
  EXPECT_THAT(message_of<UsageError>([] { wrap("a", std::shared_ptr<nn::LinearImpl>()); }),
              HasSubstr("the part 'a' has no module"));
  EXPECT_THAT(message_of<UsageError>([] { wrap_loss(std::function<at::Tensor(at::Tensor, at::Tensor)>()); }),
              HasSubstr("the loss is an empty function"));
  const auto of_nothing = [](const at::Tensor& y, const at::Tensor& t) { return square_loss(y.detach(), t); };
  EXPECT_THAT(
      message_of<UsageError>([&] { build_model({wrap("a", nn::Linear(3, 3)), wrap_loss(of_nothing)}, kExample); }),
      HasSubstr("no gradient of the loss of 'loss' reaches a trainable parameter"));
  EXPECT_THAT(message_of<UsageError>([] {
                nn::Linear first(3, 3);
                const auto clamps = [first](const at::Tensor& x) mutable {
                  const at::NoGradGuard no_grad;
                  first->weight.clamp_(-1, 1);
                  return x;
                };
                nn::Sequential both(first, nn::Functional(clamps));
                build_model({wrap("a", both), wrap_loss(square_loss)}, kExample);
              }),
              HasSubstr("'a' changes its parameter '0.weight' in forward"));
  const auto cuts = [](const at::Tensor& x) { return x.detach() * 2; };
  EXPECT_THAT(build_model({wrap("a", nn::Linear(3, 3)), wrap("cut", nn::Functional(cuts)), wrap("b", nn::Linear(3, 3)),
                           wrap_loss(square_loss)},
                          kExample)
                  .unreached,
              testing::ElementsAre("a.weight", "a.bias"));
  EXPECT_THAT(message_of<UsageError>([] {
                const c10::InferenceMode inference;
                build_model({wrap("a", nn::Linear(3, 3)), wrap_loss(square_loss)}, kExample);
              }),
              HasSubstr("inside c10::InferenceMode"));
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

TEST(Trainer, RefusesNumbersThatWouldBeCutAndTensorsWithoutValues) {
  const model::Example ids{torch::zeros({4}, torch::kLong), torch::zeros({4}, torch::kLong)};
  Trainer trainer(build_model({wrap("table", nn::Embedding(5, 5)), wrap_loss(own_model::cross_entropy)}, ids), {});
  EXPECT_THAT(message_of<ShapeError>([&] { trainer.backward(torch::full({4}, 0.9), ids.targets); }),
              HasSubstr("inputs of dtype Float would be cut to Long"));
  EXPECT_THAT(message_of<ShapeError>([&] { trainer.evaluate(ids.inputs, torch::full({4}, 0.9)); }),
              HasSubstr("targets of dtype Float would be cut to Long"));
  EXPECT_THAT(message_of<ShapeError>([&] { trainer.backward(ids.inputs, {}); }),
              HasSubstr("targets is a tensor without values"));
  const auto sum = [](const at::Tensor& y, const at::Tensor&) { return y.sum(); };
  Trainer of_bytes(
      build_model({wrap_loss("sum", nn::Linear(3, 1), sum)}, {torch::zeros({4, 3}), torch::zeros({4}, torch::kByte)}),
      {});
  for (const int number : {300, -1})
    EXPECT_THAT(message_of<ShapeError>([&] { of_bytes.backward(torch::zeros({4, 3}), torch::full({4}, number)); }),
                HasSubstr("targets of dtype Long would be cut to Byte"));
  EXPECT_THAT(
      message_of<ShapeError>([&] { of_bytes.backward(torch::full({4, 3}, 1e39, torch::kDouble), ids.targets); }),
      HasSubstr("inputs of dtype Double would be cut to Float"));
  Trainer of_halves(
      build_model({wrap_loss("sum", nn::Linear(3, 1), sum)}, {torch::zeros({4, 3}), torch::zeros({4}, torch::kHalf)}),
      {});
  EXPECT_THAT(message_of<ShapeError>([&] { of_halves.backward(torch::zeros({4, 3}), torch::full({4}, 70000)); }),
              HasSubstr("targets of dtype Long would be cut to Half"));
  trainer.backward(ids.inputs.to(torch::kInt), ids.targets.to(torch::kByte));  // nothing is lost
  EXPECT_GT(trainer.step(1e-3).loss, 0);
}

TEST(Trainer, AMicroBatchIsCopiedSoItsTensorsMayBeFilledAgain) {
  std::vector<double> losses;
  for (const bool refilled : {false, true}) {
    torch::manual_seed(4);
    Trainer trainer(build_model(two_layers(), kExample), {.accumulate = 2});
    at::Tensor inputs = torch::ones({4, 3});
    trainer.backward(inputs, kExample.targets);
    if (refilled)
      inputs.fill_(3);
    else
      inputs = torch::full({4, 3}, 3.0F);
    trainer.backward(inputs, kExample.targets);
    losses.push_back(trainer.step(1e-3).loss);
  }
  EXPECT_EQ(losses[0], losses[1]);
}

TEST(Trainer, CanBeMoved) {
  std::vector<double> losses;
  for (const bool moved : {false, true}) {
    torch::manual_seed(4);
    std::optional<Trainer> first(std::in_place, build_model(two_layers(), kExample), TrainerOptions{});
    std::optional<Trainer> second;
    if (moved) {
      second.emplace(std::move(*first));
      first.reset();
    }
    Trainer& trainer = moved ? *second : *first;
    for (int step = 0; step < 2; ++step) {
      trainer.backward(kExample.inputs, kExample.targets);
      losses.push_back(trainer.step(1e-2).loss);
    }
  }
  EXPECT_EQ(losses[0], losses[2]);
  EXPECT_EQ(losses[1], losses[3]);
}

// A table of five rows: an id of 9 ends a step with an error of LibTorch.
TEST(Trainer, GoesOnAfterAStepOrAnEvaluationThatEndedWithAnError) {
  const model::Example ids{torch::zeros({4}, torch::kLong), torch::ones({4}, torch::kLong)};
  const at::Tensor wrong = torch::full({4}, 9);
  std::vector<double> losses;
  for (const bool fails : {false, true}) {
    torch::manual_seed(4);
    nn::Embedding table(5, 5);
    Trainer trainer(build_model({wrap("table", table), wrap_loss(own_model::cross_entropy)}, ids), {});
    if (fails) {
      trainer.backward(wrong, ids.targets);
      EXPECT_ANY_THROW(trainer.step(1e-2));
      EXPECT_ANY_THROW(trainer.evaluate(wrong, ids.targets));
      EXPECT_TRUE(table->is_training());
    }
    EXPECT_EQ(trainer.steps(), 0);
    for (int step = 0; step < 3; ++step) {
      trainer.backward(ids.inputs, ids.targets);
      losses.push_back(trainer.step(1e-2).loss);
    }
    EXPECT_EQ(trainer.steps(), 3);
  }
  for (size_t step = 0; step < 3; ++step) EXPECT_EQ(losses[step], losses[step + 3]);
}

TEST(Trainer, ACheckpointHoldsTheStepsAndTheLossScaleAndRefusesAnotherOptimizer) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("trainer_checkpoint_" + std::to_string(getpid()));
  std::filesystem::remove_all(folder);
  const TrainerOptions options{.precision = {at::kHalf, at::kFloat}, .loss_scale = {.initial = 8, .window = 2}};
  {
    Trainer trainer(build_model(two_layers(), kExample, options.precision), options);
    for (int step = 0; step < 3; ++step) {
      trainer.backward(kExample.inputs, kExample.targets);
      trainer.step(1e-3);
    }
    EXPECT_EQ(trainer.state().loss_scale.scale, 16);  // it has grown once
    train::save_trainer(trainer, folder);
  }
  Trainer resumed(build_model(two_layers(), kExample, options.precision), options);
  EXPECT_EQ(train::load_trainer(resumed, folder), folder / "step-00000003");
  EXPECT_EQ(resumed.steps(), 3);
  EXPECT_EQ(resumed.state().loss_scale, (optim::LossScaleState{.scale = 16, .good_steps = 1}));
  resumed.restore({});
  EXPECT_EQ(resumed.state().loss_scale, (optim::LossScaleState{.scale = 8})) << "a new start";
  Trainer adam(build_model(two_layers(), kExample), {.optimizer = optim::options_of("Adam")});
  EXPECT_THAT(message_of<CheckpointError>([&] { train::load_trainer(adam, folder); }),
              HasSubstr("is of another optimizer: AdamW saved it, this Trainer's is Adam; make the Trainer with "
                        "optim::options_of(\"AdamW\")"));
  EXPECT_FALSE(std::filesystem::exists(folder / "step-00000003" / "config.json"));
  for (const bool more : {true, false}) {
    std::vector<Wrapped> parts;
    if (more) parts.push_back(wrap("more", nn::Linear(3, 3)));
    parts.push_back(wrap(more ? "first" : "other", nn::Linear(3, 5)));
    parts.push_back(wrap_loss("last", nn::Linear(5, 3), square_loss));
    Trainer of_other_parts(build_model(std::move(parts), kExample), {});
    EXPECT_THAT(message_of<CheckpointError>([&] { train::load_trainer(of_other_parts, folder); }),
                HasSubstr("build the model with the parts that saved it"));
  }
  std::filesystem::remove_all(folder);
}

// The loss of the second step tells how far AdamW went in the first one.
TEST(Trainer, WithoutALossScaleItGoesOnWithTheStepsThatWereNotSkipped) {
  std::vector<double> losses;
  for (const TrainerState& state :
       {TrainerState{.steps = 5, .loss_scale = {.scale = 8, .skipped = 3}}, TrainerState{.steps = 2}}) {
    torch::manual_seed(4);
    Trainer trainer(build_model(two_layers(), kExample), TrainerOptions{});
    trainer.restore(state);
    EXPECT_EQ(trainer.state().loss_scale, state.loss_scale) << "the next checkpoint holds them again";
    for (int step = 0; step < 2; ++step) {
      trainer.backward(kExample.inputs, kExample.targets);
      losses.push_back(trainer.step(1e-2).loss);
    }
  }
  EXPECT_EQ(losses[0], losses[2]);
  EXPECT_EQ(losses[1], losses[3]);
}

TEST(Trainer, RefusesARankThatIsNoneOfTheRanks) {
  EXPECT_THAT(message_of<UsageError>([] { Trainer(build_model(two_layers(), kExample), {.ranks = {.rank = 5}}); }),
              HasSubstr("ranks.rank=5 is not one of ranks.size=1"));
  EXPECT_THAT(message_of<UsageError>([] { tensor_ranks({.ranks = {.rank = -1}}); }), HasSubstr("ranks.rank=-1"));
}

TEST(Trainer, NamesTheRankAndTheOptionThatDifferBeforeTheFirstStep) {
  const std::vector<std::pair<const char*, std::function<void(TrainerOptions&)>>> changes = {
      {"accumulate (here", [](TrainerOptions& o) { o.accumulate = 2; }},
      {"strategy (here", [](TrainerOptions& o) { o.strategy = plan::Strategy::no_shard; }},
      {"max_norm (here", [](TrainerOptions& o) { o.max_norm = 2; }},
      {"optimizer.weight_decay (here", [](TrainerOptions& o) { o.optimizer.weight_decay = 5; }},
      {"optimizer (here", [](TrainerOptions& o) { o.optimizer.beta1 = 0.5; }},
      {"recompute (here", [](TrainerOptions& o) { o.recompute.mode = schedule::Recompute::full; }}};
  for (const auto& [name, change] : changes)
    EXPECT_THAT(message_of<UsageError>([&] {
                  on_threads(2, [&](int rank, const comm::GroupOptions& ranks) {
                    TrainerOptions options{.ranks = ranks};
                    if (rank == 1) change(options);
                    Trainer trainer(build_model(two_layers(), kExample), options);
                  });
                }),
                HasSubstr(std::string("ranks 0 and 1 differ in ") + name));
  EXPECT_THAT(message_of<UsageError>([] {
                on_threads(2, [](int rank, const comm::GroupOptions& ranks) {
                  auto parts = two_layers();
                  if (rank == 1) parts.insert(parts.begin(), wrap("more", nn::Linear(3, 3)));
                  Trainer trainer(build_model(std::move(parts), kExample), {.ranks = ranks});
                });
              }),
              HasSubstr("ranks 0 and 1 differ in model's parameters"));
  EXPECT_THAT(message_of<UsageError>([] {
                on_threads(2, [](int rank, const comm::GroupOptions& ranks) {
                  nn::Linear first(3, 3);
                  for (at::Tensor& p : first->parameters()) p.set_requires_grad(rank == 0);
                  auto parts = two_layers();
                  parts.insert(parts.begin(), wrap("more", first));
                  Trainer trainer(build_model(std::move(parts), kExample), {.ranks = ranks});
                });
              }),
              HasSubstr("ranks 0 and 1 differ in model's parameters"));
  EXPECT_THAT(message_of<UsageError>([] {
                on_threads(2, [](int rank, const comm::GroupOptions& ranks) {
                  Trainer trainer(build_model(two_layers(), kExample), {.ranks = ranks});
                  trainer.backward(kExample.inputs, kExample.targets);
                  trainer.step(rank == 1 ? 0.5 : 0.25);
                });
              }),
              HasSubstr("rank 1 passes the learning rate 0.5, rank 0 0.25"));
  EXPECT_THAT(message_of<UsageError>([] {
                on_threads(2, [](int rank, const comm::GroupOptions& ranks) {
                  Trainer trainer(build_model(two_layers(), kExample), {.ranks = ranks});
                  if (rank == 0) trainer.evaluate(kExample.inputs, kExample.targets);
                  trainer.backward(kExample.inputs, kExample.targets);
                  trainer.step(0);
                });
              }),
              HasSubstr("rank 1 calls step and rank 0 evaluate; every rank must make the same calls"));
  EXPECT_THAT(message_of<UsageError>([] {
                Trainer trainer(build_model(two_layers(), kExample), {});
                trainer.backward(kExample.inputs, kExample.targets);
                const c10::InferenceMode inference;
                trainer.step(0.1);
              }),
              HasSubstr("a step inside c10::InferenceMode"));
}

// The memory in which they lay has gone with their trainer, so they must not be read.
TEST(Wrap, RefusesModulesWhoseParametersLieInTheMemoryOfATrainer) {
  nn::Linear first(3, 5), last(5, 3);
  const auto build = [&] {
    return build_model({wrap("first", first), wrap_loss("last", last, square_loss)}, kExample);
  };
  const auto train_once = [&](bool stores) {
    Trainer trainer(build(), {});
    trainer.backward(kExample.inputs, kExample.targets);
    trainer.step(1e-2);
    if (stores) trainer.store();
  };
  train_once(true);
  train_once(false);
  EXPECT_THAT(
      message_of<UsageError>(build),
      HasSubstr("the parameters of 'first' lie in the memory of a Trainer that had them before; call its store()"));
}

// The text of the error of LibTorch that `call` ends with.
template <class Call>
std::string refusal_by_libtorch(Call call) {
  try {
    call();
  } catch (const c10::Error& e) {
    return e.what_without_backtrace();
  }
  return "nothing was thrown";
}

TEST(Wrap, ModulesWhoseTrainerHasGoneWithoutStoreRefuseEveryUseInOneSentence) {
  nn::Linear first(3, 5), last(5, 3);
  at::Tensor view;
  {
    Trainer trainer(build_model({wrap("first", first), wrap_loss("last", last, square_loss)}, kExample), {});
    trainer.backward(kExample.inputs, kExample.targets);
    trainer.step(1e-2);
    view = first->weight.detach().t();
  }
  const std::string sentence =
      "[wrap] the parameters of 'first' lay in the memory of a Trainer that has gone; call its store() before it goes";
  const at::NoGradGuard no_grad;
  EXPECT_EQ(refusal_by_libtorch([&] { first(kExample.inputs); }), sentence);
  EXPECT_EQ(refusal_by_libtorch([&] { first->weight.clone(); }), sentence);
  EXPECT_EQ(refusal_by_libtorch([&] { first->bias.sum(); }), sentence);
  EXPECT_EQ(refusal_by_libtorch([&] { first->weight.zero_(); }), sentence);
  EXPECT_EQ(refusal_by_libtorch([&] { first->to(at::kDouble); }), sentence);
  EXPECT_EQ(refusal_by_libtorch([&] { (void)first->weight.const_data_ptr(); }), sentence);
  EXPECT_EQ(refusal_by_libtorch([&] { view.clone(); }), sentence);
  EXPECT_THAT(refusal_by_libtorch([&] { last(torch::ones({4, 5})); }), HasSubstr("the parameters of 'last' lay in"));
}

TEST(Wrap, ModulesHaveNoValuesBetweenTheirTrainerAndItsFirstStepAndTheStepGoesOn) {
  nn::Linear first(3, 5), last(5, 3);
  const at::Tensor before = first->weight.detach().clone();
  Trainer trainer(build_model({wrap("first", first), wrap_loss("last", last, square_loss)}, kExample), {});
  EXPECT_EQ(refusal_by_libtorch([&] { first(kExample.inputs); }),
            "[wrap] the parameters of 'first' have no values between the steps of their Trainer; call its store() to "
            "read them");
  trainer.store();
  EXPECT_TRUE(at::equal(first->weight, before));
  trainer.backward(kExample.inputs, kExample.targets);
  trainer.step(1e-2);
  trainer.store();
  EXPECT_FALSE(at::equal(first->weight, before));
}

TEST(Wrap, ModulesHaveNoValuesAfterAStepAndAfterAnEvaluationUntilTheyAreStored) {
  on_threads(2, [](int, const comm::GroupOptions& ranks) {
    nn::Linear first(3, 5), last(5, 3);
    Trainer trainer(build_model({wrap("first", first), wrap_loss("last", last, square_loss)}, kExample),
                    {.ranks = ranks});
    const at::NoGradGuard no_grad;
    const auto expect_refusal = [&] {
      EXPECT_THAT(refusal_by_libtorch([&] { first(kExample.inputs); }), HasSubstr("'first' have no values between"));
      EXPECT_THAT(refusal_by_libtorch([&] { last->weight.zero_(); }), HasSubstr("'last' have no values between"));
    };
    for (int step = 0; step < 2; ++step) {
      trainer.backward(kExample.inputs, kExample.targets);
      trainer.step(1e-2);
      expect_refusal();
      const double loss = trainer.evaluate(kExample.inputs, kExample.targets);
      expect_refusal();
      trainer.store();
      EXPECT_NEAR(square_loss(last(first(kExample.inputs)), kExample.targets).item<double>() / 4, loss, 1e-5);
    }
  });
}

// The modules are a second trainer's by then, which goes on.
TEST(Wrap, ATrainerThatGoesAfterItsModulesWereStoredTakesNothingFromTheNext) {
  torch::manual_seed(3);
  nn::Linear first(3, 5), last(5, 3);
  const auto build = [&] {
    return build_model({wrap("first", first), wrap_loss("last", last, square_loss)}, kExample);
  };
  auto before = std::make_unique<Trainer>(build(), TrainerOptions{});
  before->store();
  Trainer next(build(), {});
  const auto step = [&] {
    next.backward(kExample.inputs, kExample.targets);
    return next.step(1e-2).loss;
  };
  const double loss = step();
  before.reset();
  EXPECT_LT(step(), loss);
  next.store();
  EXPECT_TRUE(at::equal(first->weight, next.parameters()[0].tensor));
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
