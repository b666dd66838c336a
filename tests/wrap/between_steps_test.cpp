// What the owner of the modules does between the steps of a Trainer: replaces values, loads checkpoints, registers
// more, forgets to build ranks alike. Nothing of it is computed with in silence.
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "support.h"
#include "trireme/base/error.h"
#include "trireme/comm/factory.h"
#include "trireme/model/parallel_layers.h"
#include "trireme/train/trainer_checkpoint.h"

namespace trireme::engine {
namespace {

namespace fs = std::filesystem;
namespace nn = torch::nn;
using testing::HasSubstr;

struct Modules {
  nn::Linear first{nullptr}, other{nullptr}, last{nullptr};
  model::Model build(at::ScalarType compute = at::kFloat) {
    torch::manual_seed(3);
    first = nn::Linear(5, 5), other = nn::Linear(5, 5), last = nn::Linear(5, 3);
    return build_model({wrap("first", nn::Sequential(first, other)), wrap_loss("last", last, square_loss)}, batch(),
                       {.compute = compute});
  }
  static model::Example batch() { return {own_model::numbers(1, {4, 5}), torch::zeros({4, 3})}; }
};

double step(Trainer& trainer, const model::Example& batch = Modules::batch()) {
  trainer.backward(batch.inputs, batch.targets);
  return trainer.step(1e-2).loss;
}

/// Losses of two steps; `between` is called with the stored modules in between.
std::vector<double> two_steps(const std::function<void(Modules&)>& between) {
  Modules modules;
  Trainer trainer(modules.build(), {});
  const double first = step(trainer);
  trainer.store();
  between(modules);
  return {first, step(trainer)};
}

struct Scratch {
  fs::path path = fs::temp_directory_path() / ("between_steps_" + std::to_string(getpid()));
  Scratch() { fs::remove_all(path); }
  ~Scratch() { fs::remove_all(path); }
};

TEST(BetweenSteps, WhateverStoredParametersBecomeIsLostWithTheNextStep) {
  const std::vector<double> alone = two_steps([](Modules&) {});
  at::Tensor mine = torch::ones({5, 5});
  const std::vector<std::pair<const char*, std::function<void(Modules&)>>> changes = {
      {"zeros", [](Modules& m) { m.first->weight.detach().zero_(); }},
      {"other strides", [](Modules& m) { m.first->weight.set_data(m.first->weight.detach().t().contiguous().t()); }},
      {"its own transpose", [](Modules& m) { m.first->weight.set_data(m.first->weight.detach().t()); }},
      {"a part of a larger tensor",
       [](Modules& m) { m.last->bias.set_data(torch::rand({90'000}).narrow(0, 80'000, 3)); }},
      {"views of one vector",
       [](Modules& m) {
         const at::Tensor flat = torch::rand({33});
         m.first->weight.set_data(flat.narrow(0, 0, 25).view({5, 5}));
         m.first->bias.set_data(flat.narrow(0, 25, 5));
       }},
      {"its sibling's tensor", [](Modules& m) { m.first->weight.set_data(m.other->weight.detach()); }},
      {"somebody else's tensor", [&](Modules& m) { m.first->weight.set_data(mine); }}};
  for (const auto& [what, change] : changes) EXPECT_EQ(two_steps(change), alone) << what;
  EXPECT_TRUE(at::equal(mine, torch::ones({5, 5}))) << "it stays its owner's";
}

TEST(BetweenSteps, MemoryThatItsOwnerGaveStaysReadable) {
  const Scratch folder;
  Modules modules;
  model::Model built = modules.build();
  at::Tensor early = torch::rand({5, 5}), late = torch::rand({5, 5});
  const at::Tensor kept = late.clone();
  modules.first->weight.set_data(early);
  Trainer trainer(std::move(built), {});
  EXPECT_TRUE(at::equal(trainer.parameters()[0].tensor, early));  // still its owner's
  step(trainer);
  train::save_trainer(trainer, folder.path);
  trainer.store();
  modules.first->weight.set_data(late);
  train::load_trainer(trainer, folder.path);
  EXPECT_TRUE(at::equal(late, kept));
}

TEST(BetweenSteps, TwoModelsOfTheSameModulesMayBeTrainedInAnyOrder) {
  nn::Linear only(5, 3);
  const auto build = [&] { return build_model({wrap_loss("only", only, square_loss)}, Modules::batch()); };
  model::Model first = build(), second = build();
  const at::Tensor values = only->weight.detach().clone();
  {
    Trainer trainer(std::move(second), {});
    step(trainer);
    Trainer other(std::move(first), {});
    EXPECT_TRUE(at::equal(other.parameters()[0].tensor, values));
  }
}

TEST(BetweenSteps, ATrainerSavesAgainWhateverItsParametersAreCalled) {
  struct NamedImpl : nn::Module {
    NamedImpl() {
      w = register_parameter("w", torch::rand({5, 3}));
      other = register_parameter("w-2", torch::rand({3}));
    }
    at::Tensor forward(const at::Tensor& x) { return x.mm(w) + other; }
    at::Tensor w, other;
  };
  const Scratch folder;
  Trainer trainer(build_model({wrap_loss("n", std::make_shared<NamedImpl>(), square_loss)}, Modules::batch()), {});
  for (int i = 0; i < 2; ++i) {
    step(trainer);
    EXPECT_EQ(train::save_trainer(trainer, folder.path), folder.path / (i == 0 ? "step-00000001" : "step-00000002"));
  }
}

TEST(BetweenSteps, ValuesGivenBeforeTheTrainerCountInAnyPrecision) {
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16})
    for (const bool replaces : {false, true}) {
      Modules modules;
      model::Model built = modules.build(compute);
      {
        const at::NoGradGuard no_grad;
        for (nn::Linear& m : {std::ref(modules.first), std::ref(modules.other), std::ref(modules.last)})
          for (at::Tensor& p : m->parameters()) replaces ? p.set_data(torch::zeros_like(p)) : (void)p.zero_();
      }
      Trainer trainer(std::move(built), {.precision = {.compute = compute}});
      for (const model::NamedTensor& p : trainer.parameters())
        EXPECT_EQ(p.tensor.abs().max().item<double>(), 0) << p.name;
    }
}

TEST(BetweenSteps, InferenceModeOutsideAStepLeavesNothingBehind) {
  const std::vector<double> alone = two_steps([](Modules&) {});
  Modules modules;
  Trainer trainer(modules.build(), {});
  EXPECT_EQ(step(trainer), alone[0]);
  {
    const c10::InferenceMode on;
    trainer.store();
    modules.last(modules.other(modules.first(Modules::batch().inputs)));
    trainer.evaluate(Modules::batch().inputs, Modules::batch().targets);
  }
  EXPECT_EQ(step(trainer), alone[1]);
  Modules others;
  model::Model built = others.build();
  EXPECT_THAT(message_of<UsageError>([&] {
                const c10::InferenceMode on;
                Trainer refused(std::move(built), {});
              }),
              HasSubstr("made inside c10::InferenceMode could not train"));
}

struct GrowingImpl : nn::Module {
  GrowingImpl() { inner = register_module("inner", nn::Linear(5, 5)); }
  at::Tensor forward(const at::Tensor& x) { return more.defined() ? inner(x) * more : inner(x); }
  void grow() { more = register_parameter("more", torch::ones({5})); }
  nn::Linear inner{nullptr};
  at::Tensor more;
};
TORCH_MODULE(Growing);

TEST(BetweenSteps, AParameterRegisteredLaterIsRefused) {
  Growing growing;
  Trainer trainer(
      build_model({wrap("growing", growing), wrap_loss("last", nn::Linear(5, 3), square_loss)}, Modules::batch()), {});
  step(trainer);
  growing->grow();
  EXPECT_THAT(message_of<UsageError>([&] { step(trainer); }), HasSubstr("'growing' has 3 parameters now, and had 2"));
}

struct FailingImpl : nn::Module {
  explicit FailingImpl(const bool* now) : fails(now) { inner = register_module("inner", nn::Linear(5, 5)); }
  at::Tensor forward(const at::Tensor& x) {
    if (*fails) throw std::runtime_error("it fails");
    return inner(x);
  }
  const bool* fails;
  nn::Linear inner{nullptr};
};
TORCH_MODULE(Failing);

// The gathers of later parts are under way when one throws.
TEST(BetweenSteps, AnErrorOnAllRanksLeavesNothingBehind) {
  const auto losses = [](plan::Strategy strategy, bool fails_once) {
    std::vector<double> all;
    on_threads(2, [&](int rank, const comm::GroupOptions& ranks) {
      bool fails = false;
      nn::Linear first(5, 5), last(5, 3);
      Failing failing(&fails);
      uint64_t seed = 1;
      for (nn::Module* module : std::initializer_list<nn::Module*>{first.get(), failing.get(), last.get()})
        for (at::Tensor& p : module->parameters()) p.detach().copy_(own_model::numbers(++seed, p.sizes().vec()));
      Trainer trainer(build_model({wrap("failing", failing), wrap("then", first), wrap_loss("last", last, square_loss)},
                                  Modules::batch()),
                      {.ranks = ranks, .strategy = strategy});
      for (int i = 0; i < 4; ++i) {
        fails = fails_once && i == 2;
        if (fails) {
          EXPECT_THAT(message_of<std::exception>([&] { step(trainer); }), HasSubstr("it fails"));
          fails = false;
        }
        const double loss = step(trainer);
        if (rank == 0) all.push_back(loss);
      }
    });
    return all;
  };
  for (const plan::Strategy strategy : {plan::Strategy::shard_grad_op, plan::Strategy::full_shard})
    EXPECT_EQ(losses(strategy, true), losses(strategy, false));
}

TEST(BetweenSteps, RanksWhoseFrozenParametersDifferAreRefused) {
  const auto outcome = [](bool alike) {
    return message_of<UsageError>([&] {
      on_threads(2, [&](int rank, const comm::GroupOptions& ranks) {
        nn::Linear frozen(5, 5), last(5, 3);
        for (at::Tensor& p : frozen->parameters()) p.requires_grad_(false), p.fill_(alike ? 1 : rank);
        Trainer trainer(build_model({wrap("frozen", frozen), wrap_loss("last", last, square_loss)}, Modules::batch()),
                        {.ranks = ranks});
      });
    });
  };
  EXPECT_THAT(outcome(false), HasSubstr("ranks 0 and 1 differ in values of frozen parameters"));
  EXPECT_EQ(outcome(true), "nothing was thrown");
}

TEST(BetweenSteps, TensorsThatOverlapAtAnotherOffsetAreTwoInOneMemory) {
  struct OverlappingImpl : nn::Module {
    explicit OverlappingImpl(bool trained) : flat(torch::rand({12})) {
      a = register_parameter("a", flat.narrow(0, 0, 9));
      trained ? b = register_parameter("b", flat.narrow(0, 3, 9)) : b = register_buffer("b", a.detach()[1]);
    }
    at::Tensor forward(const at::Tensor& x) { return x.mm(a.narrow(0, 0, 5).unsqueeze(1)) + b.sum(); }
    at::Tensor flat, a, b;
  };
  struct TwinsImpl : nn::Module {
    TwinsImpl() : v(torch::rand({5, 9}).narrow(1, 0, 5)) {
      a = register_parameter("a", v);
      b = register_parameter("b", v.detach());
    }
    at::Tensor forward(const at::Tensor& x) { return x.mm(a) + x.mm(b); }
    at::Tensor v, a, b;
  };
  EXPECT_THAT(message_of<UsageError>([&] {
                build_model({wrap_loss("part", std::make_shared<TwinsImpl>(),
                                       [](const at::Tensor& y, const at::Tensor&) { return y.sum(); })},
                            Modules::batch());
              }),
              HasSubstr("are two tensors in one memory"));
  for (const bool trained : {true, false})
    EXPECT_THAT(message_of<UsageError>([&] {
                  build_model({wrap_loss("part", std::make_shared<OverlappingImpl>(trained),
                                         [](const at::Tensor& y, const at::Tensor&) { return y.sum(); })},
                              Modules::batch());
                }),
                HasSubstr("are two tensors in one memory"));
}

TEST(BetweenSteps, AfterAHalfReadCheckpointOnlyAnotherLoadHelps) {
  const Scratch folder;
  constexpr int64_t kWidth = 1200;  // more than one block of a file, and so verified as it is read
  const model::Example wide{torch::ones({1, kWidth}), torch::zeros({1, kWidth})};
  Trainer trainer(build_model({wrap_loss("wide", nn::Linear(kWidth, kWidth), square_loss)}, wide), {});
  step(trainer, wide);
  const fs::path saved = train::save_trainer(trainer, folder.path);
  const double after = step(trainer, wide);
  fs::path broken = folder.path / "broken";
  fs::copy(saved, broken, fs::copy_options::recursive);
  for (const fs::directory_entry& file : fs::directory_iterator(broken))
    if (file.path().filename().string().starts_with("optimizer") && file.path().extension() == ".safetensors") {
      std::fstream bytes(file.path(), std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekp(-1, std::ios::end);
      bytes.put('\x55');
    }
  trainer.backward(wide.inputs, wide.targets);
  EXPECT_THROW(train::load_trainer(trainer, broken), CheckpointError);
  const std::vector<std::function<void()>> uses = {
      [&] { step(trainer, wide); }, [&] { trainer.store(); }, [&] { trainer.parameters(); },
      [&] { trainer.evaluate(wide.inputs, wide.targets); }, [&] { train::save_trainer(trainer, folder.path); }};
  for (const auto& use : uses)
    EXPECT_THAT(message_of<UsageError>(use), HasSubstr("after some weights had been read; load one that is whole"));
  EXPECT_THROW(train::load_trainer(trainer, folder.path / "step-00000009"), CheckpointError);  // nothing is read
  train::load_trainer(trainer, saved);
  trainer.store();
  EXPECT_EQ(trainer.steps(), 1);
  EXPECT_EQ(step(trainer, wide), after);
}

TEST(BetweenSteps, LoadingAFolderThatIsRefusedLeavesTheTrainerAsItWas) {
  const Scratch folder;
  Modules modules;
  Trainer trainer(modules.build(), {});
  Trainer other(build_model(two_layers(), kExample), {});
  other.backward(kExample.inputs, kExample.targets);
  other.step(1e-2);
  train::save_trainer(other, folder.path);
  const double first = step(trainer);
  EXPECT_THROW(train::load_trainer(trainer, folder.path), CheckpointError);
  EXPECT_LT(step(trainer), first);
  // Nor does it save beside checkpoints of another model.
  Trainer third(build_model({wrap("third", nn::Linear(5, 5)), wrap_loss("last", nn::Linear(5, 3), square_loss)},
                            Modules::batch()),
                {});
  step(third);
  EXPECT_THAT(message_of<UsageError>([&] { train::save_trainer(third, folder.path); }),
              HasSubstr("holds checkpoints of another model (the tensor third.bias is only this trainer's)"));
}

TEST(BetweenSteps, StoredModulesHaveTheBuffersOfTheirPipelineStage) {
  on_threads(2, [](int, const comm::GroupOptions& ranks) {
    nn::BatchNorm1d early(5), late(5);
    Trainer trainer(build_model({wrap("first", nn::Sequential(nn::Linear(5, 5), early)),
                                 wrap_loss("last", nn::Sequential(late, nn::Linear(5, 3)), square_loss)},
                                Modules::batch()),
                    {.ranks = ranks, .mesh = {.pp = 2, .shard = 1}, .accumulate = 3});
    for (int i = 0; i < 3; ++i) trainer.backward(Modules::batch().inputs, Modules::batch().targets);
    trainer.step(1e-2);
    trainer.store();
    for (const auto& norm : {early, late}) {
      EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 3);
      EXPECT_GT(norm->running_mean.abs().max().item<double>(), 0);
    }
  });
}

TEST(BetweenSteps, AMicroBatchIsGoneAfterAnErrorOfAnyKind) {
  on_threads(2, [](int rank, const comm::GroupOptions& ranks) {
    Modules modules;
    static std::mutex mutex;
    std::unique_lock lock(mutex);
    model::Model built = modules.build();
    lock.unlock();
    Trainer trainer(std::move(built), {.ranks = ranks});
    const model::Example b = Modules::batch();
    trainer.backward(b.inputs, b.targets);
    const auto call = [&] { rank == 0 ? (void)trainer.step(1e-2) : (void)trainer.evaluate(b.inputs, b.targets); };
    EXPECT_THAT(message_of<UsageError>(call), HasSubstr("every rank must make the same calls"));
    if (rank == 0) trainer.backward(b.inputs, b.targets);
    EXPECT_GT(trainer.step(1e-2).loss, 0);
  });
}

TEST(BetweenSteps, ConnectedRanksOutliveTheirTrainer) {
  on_threads(2, [](int rank, comm::GroupOptions options) {
    options.name = "tp";
    auto group = comm::make_communicator(options);
    const auto ranks = std::make_shared<TensorRanks>(model::Parallel{.tp_rank = rank, .tp_size = 2});
    ranks->connect(group);
    group.reset();
    const at::Tensor x = torch::ones({1, 3}, at::requires_grad());
    at::Tensor y = ranks->gather(x * 2, 1);
    EXPECT_EQ(y.relu_().sum().item<double>(), 12);  // a batch of one may be changed in place, too
    EXPECT_EQ(ranks->max(at::full({1}, double(rank))).item<double>(), 1);
  });
}

}  // namespace
}  // namespace trireme::engine
