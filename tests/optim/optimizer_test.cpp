#include "trireme/optim/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <hwy/detect_targets.h>
#include <hwy/targets.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::optim {
namespace {

at::Tensor random(int64_t count, at::ScalarType dtype, int64_t seed) {
  return at::randn({count}, at::detail::createCPUGenerator(seed), at::TensorOptions().dtype(at::kDouble)).to(dtype);
}

struct State {
  at::Tensor master, exp_avg, exp_avg_sq, gradient, compute;
  State(int64_t count, at::ScalarType dtype, at::ScalarType compute_dtype)
      : master(random(count, dtype, 1)),
        exp_avg(random(count, dtype, 2) * 0.1),
        exp_avg_sq(random(count, dtype, 3).square() * 0.01),
        gradient(random(count, dtype, 4)),
        compute(at::zeros({count}, compute_dtype)) {}
  void update(std::span<const DecaySegment> segments, const OptimizerOptions& options) {
    optimizer_update(master, std::array{exp_avg, exp_avg_sq}, gradient, compute, segments, options);
  }
};

void on_every_instruction_set(const std::function<void()>& check) {
  const int64_t supported = (hwy::SupportedTargets() & HWY_TARGETS) | HWY_STATIC_TARGET;
  for (int64_t rest = supported; rest != 0; rest &= rest - 1) {
    SCOPED_TRACE(hwy::TargetName(rest & -rest));
    hwy::SetSupportedTargetsForTest(rest & -rest);
    hwy::GetChosenTarget().DeInit();
    check();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

/// Largest difference over all elements, relative to the largest element.
double error(const at::Tensor& actual, const at::Tensor& expected) {
  const auto wide = expected.to(at::kDouble);
  return ((actual.to(at::kDouble) - wide).abs().max() / wide.abs().max()).item<double>();
}

const OptimizerOptions kOptions{.lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .step = 3};

TEST(AdamW, AgreesWithLibTorchsFusedUpdateInDouble) {
  on_every_instruction_set([] {
    for (const auto dtype : {at::kDouble, at::kFloat}) {
      State ours(1003, dtype, dtype);
      std::vector<at::Tensor> p{ours.master.to(at::kDouble).clone()}, g{ours.gradient.to(at::kDouble).clone()},
          m{ours.exp_avg.to(at::kDouble).clone()}, v{ours.exp_avg_sq.to(at::kDouble).clone()},
          step{at::full({}, 3.0, at::kFloat)};
      at::_fused_adamw_(p, g, m, v, {}, step, kOptions.lr, kOptions.beta1, kOptions.beta2, kOptions.weight_decay,
                        kOptions.eps, false, false);
      const DecaySegment all{0, 1003, true};
      ours.update({&all, 1}, kOptions);
      // float32: five roundings of 6e-8; float64: the same of 1e-16.
      const double tolerance = dtype == at::kDouble ? 1e-14 : 5e-7;
      EXPECT_LE(error(ours.master, p[0]), tolerance);
      EXPECT_LE(error(ours.exp_avg, m[0]), tolerance);
      EXPECT_LE(error(ours.exp_avg_sq, v[0]), tolerance);
      EXPECT_TRUE(ours.compute.equal(ours.master));
    }
  });
}

TEST(AdamW, WritesTheBfloat16CopyRoundedToNearestEven) {
  on_every_instruction_set([] {
    for (const auto dtype : {at::kDouble, at::kFloat}) {
      State state(77, dtype, at::kBFloat16);
      const DecaySegment all{0, 77, true};
      state.update({&all, 1}, kOptions);
      EXPECT_TRUE(state.compute.equal(state.master.to(at::kFloat).to(at::kBFloat16)));
    }
  });
}

TEST(AdamW, DecaysOnlyWhereASegmentSaysSo) {
  State decayed(100, at::kDouble, at::kDouble), mixed(100, at::kDouble, at::kDouble),
      none(100, at::kDouble, at::kDouble);
  const DecaySegment all{0, 100, true}, nothing{0, 100, false};
  const DecaySegment parts[] = {{0, 33, true}, {33, 33, true}, {33, 70, false}, {70, 100, true}};
  decayed.update({&all, 1}, kOptions);
  none.update({&nothing, 1}, kOptions);
  mixed.update(parts, kOptions);
  EXPECT_TRUE(mixed.master.narrow(0, 0, 33).equal(decayed.master.narrow(0, 0, 33)));
  EXPECT_TRUE(mixed.master.narrow(0, 33, 37).equal(none.master.narrow(0, 33, 37)));
  EXPECT_TRUE(mixed.master.narrow(0, 70, 30).equal(decayed.master.narrow(0, 70, 30)));
  EXPECT_FALSE(decayed.master.equal(none.master));
}

TEST(AdamW, GradientScaleIsTheClipFactor) {
  State scaled(50, at::kFloat, at::kFloat), divided(50, at::kFloat, at::kFloat);
  const DecaySegment all{0, 50, true};
  auto options = kOptions;
  divided.gradient = divided.gradient * 0.25;
  divided.update({&all, 1}, options);
  options.gradient_scale = 0.25;
  scaled.update({&all, 1}, options);
  EXPECT_TRUE(scaled.master.equal(divided.master));
  EXPECT_TRUE(scaled.exp_avg_sq.equal(divided.exp_avg_sq));
}

TEST(AdamW, BitsDoNotDependOnTheCutNorOnThreads) {
  on_every_instruction_set([] {
    constexpr int64_t kCount = 100'003;
    State whole(kCount, at::kFloat, at::kBFloat16);
    const DecaySegment all{0, kCount, true};
    at::set_num_threads(1);
    whole.update({&all, 1}, kOptions);

    State threaded(kCount, at::kFloat, at::kBFloat16);
    at::set_num_threads(2);
    threaded.update({&all, 1}, kOptions);
    at::set_num_threads(1);
    EXPECT_TRUE(threaded.master.equal(whole.master) && threaded.compute.equal(whole.compute));

    State cut(kCount, at::kFloat, at::kBFloat16);
    for (int64_t first = 0; first < kCount;) {
      const int64_t count = std::min<int64_t>(kCount - first, 1 + first % 1237);
      const DecaySegment part{0, count, true};
      const auto piece = [&](const at::Tensor& tensor) { return tensor.narrow(0, first, count); };
      optimizer_update(piece(cut.master), std::array{piece(cut.exp_avg), piece(cut.exp_avg_sq)}, piece(cut.gradient),
                       piece(cut.compute), {&part, 1}, kOptions);
      first += count;
    }
    EXPECT_TRUE(cut.master.equal(whole.master) && cut.compute.equal(whole.compute));
    EXPECT_TRUE(cut.exp_avg.equal(whole.exp_avg) && cut.exp_avg_sq.equal(whole.exp_avg_sq));
  });
}

TEST(AdamW, FirstStepFromZeroMomentsMovesByTheLearningRate) {
  State state(4, at::kDouble, at::kDouble);
  state.master.zero_(), state.exp_avg.zero_(), state.exp_avg_sq.zero_();
  state.gradient.copy_(at::tensor({3.0, -0.5, 1e-3, 0.0}, at::kDouble));
  const DecaySegment all{0, 4, true};
  state.update({&all, 1}, {.lr = 0.1, .step = 1});
  EXPECT_LE(error(state.master, at::tensor({-0.1, 0.1, -0.1, 0.0}, at::kDouble)), 1e-4);
}

TEST(AdamW, RefusesSegmentsThatDoNotCoverTheSpan) {
  State state(10, at::kFloat, at::kFloat);
  const auto message = [&](std::vector<DecaySegment> segments) -> std::string {
    try {
      state.update(segments, kOptions);
    } catch (const ShapeError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message({{0, 4, true}, {5, 10, true}}),
            "optimizer_update: segment [5, 10) must begin at 4, where the one before it ends");
  EXPECT_EQ(message({{0, 4, true}}),
            "optimizer_update: segments end at 4, the span has 10 elements; every element needs a segment");
  state.gradient = state.gradient.to(at::kBFloat16);
  EXPECT_EQ(message({{0, 10, true}}),
            "optimizer_update: gradient is CPU bfloat16 [10]; it must be contiguous CPU float32 [10]");
}

OptimizerOptions options_for(const char* name, double momentum = 0, bool nesterov = false) {
  OptimizerOptions options = options_of(name);
  options.lr = 0.01;
  options.weight_decay = 0.1;
  options.momentum = momentum;
  options.nesterov = nesterov;
  return options;
}

/// Five steps of `options` over changing gradients, from zero state; the last quarter of the span does not decay.
struct Run {
  static constexpr int64_t kCount = 403, kDecayed = 300;
  at::Tensor master, compute;
  std::vector<at::Tensor> state;
  Run(OptimizerOptions options, at::ScalarType dtype)
      : master(random(kCount, dtype, 1)), compute(at::zeros({kCount}, dtype)) {
    for (size_t i = 0; i < state_names(options).size(); ++i) state.push_back(at::zeros({kCount}, dtype));
    const DecaySegment parts[] = {{0, kDecayed, true}, {kDecayed, kCount, false}};
    for (options.step = 1; options.step <= 5; ++options.step)
      optimizer_update(master, state, gradient(options.step, dtype), compute, parts, options);
  }
  static at::Tensor gradient(int64_t step, at::ScalarType dtype) { return random(kCount, dtype, 10 + step); }
};

/// The same steps by `update` (parameter, gradient, step) on each part of the span, as PyTorch's groups have it.
template <typename Update>
at::Tensor expected(Update update) {
  const at::Tensor whole = random(Run::kCount, at::kDouble, 1);
  const std::pair<int64_t, int64_t> parts[] = {{0, Run::kDecayed}, {Run::kDecayed, Run::kCount}};
  for (const auto& [begin, end] : parts) {
    at::Tensor p = whole.slice(0, begin, end);
    auto step = update(begin == 0 ? 0.1 : 0.0);
    for (int64_t i = 1; i <= 5; ++i) step(p, Run::gradient(i, at::kDouble).slice(0, begin, end), i);
  }
  return whole;
}

void expect_steps(const OptimizerOptions& options, const at::Tensor& wanted) {
  on_every_instruction_set([&] {
    for (const auto dtype : {at::kDouble, at::kFloat}) {
      const Run ours(options, dtype);
      EXPECT_LE(error(ours.master, wanted), dtype == at::kDouble ? 1e-14 : 1e-6);
      EXPECT_TRUE(ours.compute.equal(ours.master));
    }
  });
}

TEST(Adam, AgreesWithLibTorchsFusedUpdate) {
  expect_steps(options_for("Adam"), expected([](double decay) {
                 return [=, m = at::Tensor(), v = at::Tensor()](at::Tensor p, const at::Tensor& g, int64_t i) mutable {
                   if (i == 1) m = at::zeros_like(p), v = at::zeros_like(p);
                   std::vector<at::Tensor> ps{p.clone()}, gs{g.clone()}, ms{m}, vs{v},
                       steps{at::full({}, double(i), at::kFloat)};
                   at::_fused_adam_(ps, gs, ms, vs, {}, steps, 0.01, 0.9, 0.999, decay, 1e-8, false, false);
                   p.copy_(ps[0]);
                 };
               }));
}

TEST(Sgd, AgreesWithLibTorchsFusedUpdate) {
  for (const double momentum : {0.0, 0.9})
    for (const bool nesterov : {false, true}) {
      if (nesterov && momentum == 0) continue;
      SCOPED_TRACE(std::to_string(momentum) + (nesterov ? " nesterov" : ""));
      expect_steps(options_for("SGD", momentum, nesterov), expected([=](double decay) {
                     return [=, b = at::Tensor()](at::Tensor p, const at::Tensor& g, int64_t i) mutable {
                       if (i == 1) b = at::zeros_like(p);
                       std::vector<at::Tensor> ps{p.clone()}, gs{g.clone()}, bs;
                       if (momentum > 0) bs.push_back(b);
                       at::_fused_sgd_(ps, gs, bs, decay, momentum, 0.01, 0, nesterov, false, i == 1);
                       p.copy_(ps[0]);
                     };
                   }));
    }
}

TEST(Lion, IsThePapersFormula) {
  expect_steps(options_for("Lion"), expected([](double decay) {
                 return [=, m = at::Tensor()](at::Tensor p, const at::Tensor& g, int64_t i) mutable {
                   if (i == 1) m = at::zeros_like(p);
                   const at::Tensor update = (0.9 * m + (1 - 0.9) * g).sign();
                   p.copy_(p - 0.01 * (update + decay * p));
                   m = 0.99 * m + (1 - 0.99) * g;
                 };
               }));
}

TEST(Lion, StandsStillWithoutAGradientAndShowsOneThatIsNoNumber) {
  const at::Tensor master = at::ones({3}), compute, m = at::zeros({3});
  const at::Tensor gradient = at::tensor({0.f, -2.f, std::numeric_limits<float>::quiet_NaN()});
  OptimizerOptions options = options_of("Lion");
  options.lr = 0.5;
  options.step = 1;
  const DecaySegment all{0, 3, true};
  optimizer_update(master, std::array{m}, gradient, compute, {&all, 1}, options);
  EXPECT_EQ(master[0].item<float>(), 1);
  EXPECT_EQ(master[1].item<float>(), 1.5f);
  EXPECT_TRUE(std::isnan(master[2].item<float>()));
}

TEST(Optimizers, KeepWhatPyTorchKeepsUnderItsNames) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(state_names(options_of("AdamW")), (Names{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(state_names(options_of("Adam")), (Names{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(state_names(options_of("SGD")), Names{});
  EXPECT_EQ(state_names(options_for("SGD", 0.9)), Names{"momentum_buffer"});
  EXPECT_EQ(state_names(options_of("Lion")), Names{"exp_avg"});
  EXPECT_EQ(state_names(options_of("Adagrad")), Names{"sum"});
  EXPECT_EQ(state_names(options_of("LARS")), Names{"momentum_buffer"});
  EXPECT_EQ(state_names(options_of("LAMB")), (Names{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(state_names(options_of("Adafactor")), Names{});
  EXPECT_EQ(state_names(options_of("Muon")), Names{"momentum_buffer"});
  EXPECT_THROW(options_of("Adadelta"), UsageError);
  State state(4, at::kFloat, at::kFloat);
  const DecaySegment all{0, 4, true};
  OptimizerOptions lion = options_of("Lion");
  lion.step = 1;
  EXPECT_THROW(state.update({&all, 1}, lion), ShapeError);  // two tensors where it keeps one
}

TEST(Optimizers, BitsDoNotDependOnTheCut) {
  on_every_instruction_set([] {
    for (const char* name : {"Adam", "SGD", "Lion", "Adagrad"}) {
      SCOPED_TRACE(name);
      OptimizerOptions options = options_for(name, std::string(name) == "SGD" ? 0.9 : 0);
      options.step = 2;
      const auto run = [&](int64_t piece) {
        const int64_t count = 1003;
        const at::Tensor master = random(count, at::kFloat, 1), gradient = random(count, at::kFloat, 2),
                         compute = at::zeros({count}, at::kBFloat16);
        std::vector<at::Tensor> state;
        for (size_t i = 0; i < state_names(options).size(); ++i)
          state.push_back(random(count, at::kFloat, 3 + int64_t(i)).abs());
        for (int64_t first = 0; first < count; first += piece) {
          const int64_t size = std::min(piece, count - first);
          const DecaySegment part{0, size, true};
          std::vector<at::Tensor> parts;
          for (const at::Tensor& t : state) parts.push_back(t.narrow(0, first, size));
          optimizer_update(master.narrow(0, first, size), parts, gradient.narrow(0, first, size),
                           compute.narrow(0, first, size), {&part, 1}, options);
        }
        return at::cat({master, compute.to(at::kFloat), state[0]});
      };
      EXPECT_TRUE(run(1003).equal(run(37)));
    }
  });
}

TEST(SquaredNorm, PartialsAreTheSumsOfBlocks) {
  on_every_instruction_set([] {
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      for (const int64_t count : {0, 1, 31, 4096, 4097, 3 * 4096 + 1000}) {
        const auto gradient = random(count, dtype, 1);
        const auto partials =
            at::full({(count + kNormBlock - 1) / kNormBlock}, std::numeric_limits<double>::quiet_NaN(), at::kDouble);
        squared_norm_partials(partials, gradient);
        for (int64_t block = 0; block < partials.size(0); ++block) {
          const int64_t first = block * kNormBlock, size = std::min(kNormBlock, count - first);
          const double expected = gradient.narrow(0, first, size).to(at::kDouble).square().sum().item<double>();
          EXPECT_NEAR(partials[block].item<double>(), expected, 1e-13 * expected);
        }
      }
    }
  });
}

TEST(SquaredNorm, HasTheSameBitsOnEveryInstructionSetAndNumberOfThreads) {
  const auto gradient = random(40 * 4096 + 77, at::kFloat, 1);
  const auto expected = at::zeros({41}, at::kDouble), partials = at::zeros({41}, at::kDouble);
  squared_norm_partials(expected, gradient);
  on_every_instruction_set([&] {
    for (const int num_threads : {1, 2}) {
      at::set_num_threads(num_threads);
      partials.zero_();
      squared_norm_partials(partials, gradient);
      EXPECT_TRUE(partials.equal(expected));
    }
    at::set_num_threads(1);
  });
}

TEST(SquaredNorm, ShowsInfinityAndNaN) {
  auto gradient = at::ones({5000});
  gradient[4500] = std::numeric_limits<float>::quiet_NaN();
  const auto partials = at::zeros({2}, at::kDouble);
  squared_norm_partials(partials, gradient);
  EXPECT_EQ(partials[0].item<double>(), 4096);
  EXPECT_TRUE(std::isnan(partials[1].item<double>()));
}

}  // namespace
}  // namespace trireme::optim
