// Rules by tensor without a model; tests/train/optimizers_judge.py has their references.
#include "trireme/optim/by_tensor.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/optim/adafactor.h"
#include "trireme/optim/adamw8bit.h"

namespace trireme::optim {
namespace {

const AddParts kAlone = [](const at::Tensor&) {};

at::Tensor normal(at::IntArrayRef shape, int64_t seed, at::ScalarType dtype = at::kDouble) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::TensorOptions().dtype(at::kDouble)).to(dtype);
}

/// A span of a matrix, padding, and a vector that does not decay.
struct Tensors {
  static constexpr int64_t kRows = 70, kColumns = 33, kMatrix = kRows * kColumns, kVector = 4096, kEnd = 5000;
  model::ParameterSpec matrix{.name = "m", .shape = {kRows, kColumns}, .init = {}};
  model::ParameterSpec vector{.name = "v", .shape = {kEnd - kVector}, .init = {}, .decay = false};
  std::vector<DecaySegment> segments = {{.begin = 0, .end = kMatrix, .decay = true, .parameter = &matrix},
                                        {.begin = kMatrix, .end = kVector, .decay = false},
                                        {.begin = kVector, .end = kEnd, .decay = false, .parameter = &vector}};
  at::Tensor master, gradient;
  std::vector<at::Tensor> state;
  at::Tensor work;
  Tensors(const OptimizerOptions& options, at::ScalarType dtype) {
    if (options.rule == Rule::muon) segments.resize(1);
    const int64_t end = segments.back().end;
    const at::Tensor inside = at::ones({end}, dtype);
    if (end > kMatrix) inside.slice(0, kMatrix, kVector).zero_();
    master = normal({end}, 1, dtype) * inside;
    gradient = normal({end}, 2, dtype) * inside;
    for (size_t i = 0; i < state_names(options).size(); ++i) state.push_back(at::zeros({end}, dtype));
    if (const int64_t whole = whole_state_elements(options.rule, segments); whole > 0)
      state.push_back(at::zeros({whole}, dtype));
    work = at::empty({step_work_bytes(options.rule, segments, dtype, dtype)}, at::kByte);
  }
  at::Tensor step(const OptimizerOptions& options) {
    const at::Tensor before = master.clone();
    step_group({master, state, gradient, {}, work}, segments, options, kAlone);
    return master - before;
  }
};

OptimizerOptions first_step_of(const char* name) {
  OptimizerOptions options = options_of(name);
  options.lr = 0.1;
  options.step = 1;
  return options;
}

// A part of a matrix of 16 x 1,024, of whole blocks of 256: its rows, or its columns.
model::ParameterSpec part_of_matrix(int split_dim, int64_t rank) {
  const int64_t size = split_dim == 0 ? 8 : 512;
  return {.name = "m",
          .shape = split_dim == 0 ? std::vector<int64_t>{8, 1024} : std::vector<int64_t>{16, 512},
          .init = {},
          .full_shape = {16, 1024},
          .split_dim = split_dim,
          .pieces = {{rank * size, (rank + 1) * size}}};
}

TEST(AdamW8bit, APartOfWholeBlocksHasTheBitsOfTheWhole) {
  const model::ParameterSpec whole{.name = "m", .shape = {16, 1024}, .init = {}};
  const auto stepped = [&](const model::ParameterSpec& p) {
    const std::vector<DecaySegment> segments = {{.begin = 0, .end = p.numel(), .decay = true, .parameter = &p}};
    const auto taken = [&](int64_t seed) {
      const at::Tensor all = normal({16 * 1024}, seed, at::kFloat), own = at::empty({p.numel()}, at::kFloat);
      model::for_each_run(p, 0, p.numel(), [&](int64_t local, int64_t full, int64_t count) {
        own.narrow(0, local, count).copy_(all.narrow(0, full, count));
      });
      return own;
    };
    const at::Tensor master = taken(1);
    const std::vector<at::Tensor> state = {at::zeros({whole_state_elements(Rule::adamw8bit, segments)}, at::kFloat)};
    for (int64_t step = 1; step <= 3; ++step) {
      OptimizerOptions options = first_step_of("AdamW8bit");
      options.step = step;
      step_adamw8bit({master, state, taken(1 + step), {}, {}}, segments, options);
    }
    return std::pair(master, state[0]);
  };
  const auto [values, state] = stepped(whole);
  for (const int split_dim : {0, 1})
    for (const int64_t rank : {0, 1}) {
      const model::ParameterSpec p = part_of_matrix(split_dim, rank);
      EXPECT_FALSE(cuts_state_blocks(p));
      const auto [own, own_state] = stepped(p);
      EXPECT_EQ(2 * own_state.numel(), state.numel());
      model::for_each_run(p, 0, p.numel(), [&](int64_t local, int64_t full, int64_t count) {
        EXPECT_TRUE(own.narrow(0, local, count).equal(values.narrow(0, full, count)));
        EXPECT_TRUE(
            own_state.view(at::kByte).narrow(0, local, count).equal(state.view(at::kByte).narrow(0, full, count)));
      });
    }
  model::ParameterSpec cut = part_of_matrix(1, 0);
  cut.shape = {16, 384}, cut.pieces = {{0, 384}};
  EXPECT_TRUE(cuts_state_blocks(cut));
}

TEST(ByTensor, LambsStepHasTheNormOfItsTensorWithinTheBounds) {
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    OptimizerOptions options = first_step_of("LAMB");
    Tensors t(options, dtype);
    const double norm = t.master.slice(0, 0, Tensors::kMatrix).norm().item<double>();
    const double first = std::sqrt(1 - options.beta2) / (1 - options.beta1);  // the first step's correction
    const at::Tensor moved = t.step(options);
    EXPECT_NEAR(moved.slice(0, 0, Tensors::kMatrix).norm().item<double>(), 0.1 * first * norm, 1e-5 * norm);
    EXPECT_EQ(moved.slice(0, Tensors::kMatrix, Tensors::kVector).abs().max().item<double>(), 0);
    options.trust_bounds = {0, 0};
    EXPECT_EQ(Tensors(options, dtype).step(options).abs().max().item<double>(), 0);
  }
}

TEST(ByTensor, LambMovesATensorOfZerosAndOneWithoutAGradientStandsStill) {
  const OptimizerOptions options = first_step_of("LAMB");
  Tensors zeros(options, at::kDouble), still(options, at::kDouble);
  zeros.master.zero_();
  EXPECT_GT(zeros.step(options).abs().max().item<double>(), 0);
  still.gradient.zero_();
  EXPECT_EQ(still.step(options).abs().max().item<double>(), 0);
}

TEST(ByTensor, LarsStepIsAShareOfTheMatrixAndLeavesVectorsToSgd) {
  const OptimizerOptions options = first_step_of("LARS");
  Tensors t(options, at::kDouble);
  const double norm = t.master.slice(0, 0, Tensors::kMatrix).norm().item<double>();
  const at::Tensor moved = t.step(options);
  EXPECT_NEAR(moved.slice(0, 0, Tensors::kMatrix).norm().item<double>(), 0.1 * 1e-3 * norm, 1e-9 * norm);
  EXPECT_TRUE(moved.slice(0, Tensors::kVector, Tensors::kEnd)
                  .allclose(-0.1 * t.gradient.slice(0, Tensors::kVector, Tensors::kEnd)));
}

TEST(ByTensor, LarsCallsAMatrixOneThatDoesNotDecay) {
  const OptimizerOptions options = first_step_of("LARS");
  Tensors t(options, at::kDouble);
  t.segments[0].decay = false, t.segments[0].weight_decay = 0;  // optimizer.groups says weight_decay=0
  const double norm = t.master.slice(0, 0, Tensors::kMatrix).norm().item<double>();
  EXPECT_NEAR(t.step(options).slice(0, 0, Tensors::kMatrix).norm().item<double>(), 0.1 * 1e-3 * norm, 1e-9 * norm);
}

TEST(ByTensor, AdamW8bitHasCodesBesideTinyAndHugeGradients) {
  const model::ParameterSpec matrix{.name = "m", .shape = {64, 64}, .init = {}};
  const std::vector<DecaySegment> segments = {{.begin = 0, .end = 4096, .decay = true, .parameter = &matrix}};
  for (const float odd : {1e-20f, 1e30f, std::numeric_limits<float>::infinity()}) {
    const std::vector<at::Tensor> state = {at::zeros({whole_state_elements(Rule::adamw8bit, segments)}, at::kFloat)};
    const at::Tensor master = at::ones({4096}), gradient = at::zeros({4096});
    gradient[3] = odd;
    step_adamw8bit({master, state, gradient, {}, {}}, segments, {.rule = Rule::adamw8bit, .lr = 0.1, .step = 1});
    EXPECT_EQ(master.isfinite().sum().item<int64_t>(), std::isfinite(odd) ? 4096 : 4095) << odd;
  }
}

// The vector is trained from step 41 on, the matrix from the first.
TEST(ByTensor, ASegmentCountsTheStepsInWhichItWasTrained) {
  for (const char* name : {"AdamW", "Adam", "LAMB", "Adafactor", "AdamW8bit"}) {
    OptimizerOptions options = first_step_of(name);
    options.relative_step = options.warmup_init = true;  // Adafactor's rate then grows with the step
    const at::Tensor first = Tensors(options, at::kFloat).step(options);
    options.step = 41;
    const at::Tensor later = Tensors(options, at::kFloat).step(options);
    Tensors both(options, at::kFloat);
    both.segments.back().untrained = 40;
    const at::Tensor moved = both.step(options);
    EXPECT_TRUE(moved.slice(0, 0, Tensors::kVector).equal(later.slice(0, 0, Tensors::kVector))) << name;
    EXPECT_TRUE(moved.slice(0, Tensors::kVector).equal(first.slice(0, Tensors::kVector))) << name;
    EXPECT_FALSE(later.slice(0, Tensors::kVector).equal(first.slice(0, Tensors::kVector))) << name;
    both.segments.back().untrained = 41;
    if (!whole_state_elements(options.rule, both.segments)) EXPECT_THROW(both.step(options), ShapeError) << name;
  }
}

TEST(ByTensor, MuonsStepHasSingularValuesNearOne) {
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    OptimizerOptions options = first_step_of("Muon");
    options.weight_decay = 0;
    Tensors t(options, dtype);
    const at::Tensor step = (t.step(options) / -0.1).view({Tensors::kRows, Tensors::kColumns}).to(at::kDouble);
    const at::Tensor values = at::linalg_svdvals(step / std::sqrt(70.0 / 33.0));
    EXPECT_GT(values.min().item<double>(), 0.5);
    EXPECT_LT(values.max().item<double>(), 1.5);
  }
}

TEST(ByTensor, ClippingScalesTheGradient) {
  for (const char* name : {"LARS", "LAMB", "Adafactor", "Muon"}) {
    OptimizerOptions options = first_step_of(name);
    Tensors scaled(options, at::kDouble), divided(options, at::kDouble);
    divided.gradient = divided.gradient * 0.25;
    const at::Tensor wanted = divided.step(options);
    options.gradient_scale = 0.25;
    EXPECT_TRUE(scaled.step(options).equal(wanted)) << name;
  }
}

TEST(ByTensor, AMatrixDividedOverRanksIsUpdatedAsAWhole) {
  for (const char* name : {"LARS", "LAMB", "Adafactor", "Muon"}) {
    const OptimizerOptions options = first_step_of(name);
    Tensors whole(options, at::kDouble);
    whole.segments.resize(1);
    whole.master = whole.master.slice(0, 0, Tensors::kMatrix);
    whole.gradient = whole.gradient.slice(0, 0, Tensors::kMatrix);
    for (at::Tensor& state : whole.state)
      if (options.rule != Rule::adafactor) state = state.slice(0, 0, Tensors::kMatrix);
    whole.step(options);
    // Two ranks in threads, with 20 and 13 of the columns.
    constexpr int64_t kParts[2][2] = {{0, 20}, {20, 33}};
    std::array<at::Tensor, 2> masters, given;
    std::array<size_t, 2> calls{}, declared{};
    std::barrier meeting(2);
    const auto run = [&](int rank) {
      const int64_t begin = kParts[rank][0], end = kParts[rank][1];
      const auto part = [&](const at::Tensor& tensor) {
        return tensor.slice(0, 0, Tensors::kMatrix)
            .view({Tensors::kRows, Tensors::kColumns})
            .slice(1, begin, end)
            .contiguous()
            .view({-1});
      };
      Tensors t(options, at::kDouble);
      const model::ParameterSpec mine{.name = "m",
                                      .shape = {Tensors::kRows, end - begin},
                                      .init = {},
                                      .full_shape = {Tensors::kRows, Tensors::kColumns},
                                      .split_dim = 1,
                                      .pieces = {{begin, end}}};
      t.segments = {{.begin = 0, .end = mine.numel(), .decay = true, .parameter = &mine}};
      t.work = at::empty({step_work_bytes(options.rule, t.segments, at::kDouble, at::kDouble)}, at::kByte);
      std::vector<at::Tensor> state;
      for (const at::Tensor& s : t.state) state.push_back(options.rule == Rule::adafactor ? s : part(s));
      const at::Tensor master = part(t.master);
      step_group({master, state, part(t.gradient), {}, t.work}, t.segments, options, [&](const at::Tensor& tensor) {
        given[rank] = tensor.clone();
        ++calls[rank];
        meeting.arrive_and_wait();
        at::Tensor(tensor).copy_(given[0] + given[1]);
        meeting.arrive_and_wait();
      });
      declared[rank] = step_traffic(options.rule, t.segments, at::kDouble).size();
      masters[rank] = master.view({Tensors::kRows, end - begin});
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    EXPECT_EQ(calls, declared);
    const at::Tensor wanted = whole.master.slice(0, 0, Tensors::kMatrix).view({Tensors::kRows, Tensors::kColumns});
    EXPECT_LE((at::cat({masters[0], masters[1]}, 1) - wanted).abs().max().item<double>(), 1e-13) << name;
  }
}

}  // namespace
}  // namespace trireme::optim
