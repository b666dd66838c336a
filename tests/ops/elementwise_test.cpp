#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/ops/reference.h"
#include "tests/ops/support.h"
#include "trireme/base/error.h"
#include "trireme/base/processor.h"
#include "trireme/machine/limits.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/gradient.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/storage.h"

namespace trireme::ops::test {
namespace {

struct ElementwiseSize {
  int64_t rows, width;
};
const ElementwiseSize kElementwiseSizes[] = {{1, 1}, {3, 16}, {5, 67}, {40, 300}};

at::Tensor swiglu_reference(const std::vector<at::Tensor>& in) { return reference::swiglu(in[0]); }
at::Tensor geglu_reference(const std::vector<at::Tensor>& in) { return reference::geglu(in[0]); }
at::Tensor gelu_reference(const std::vector<at::Tensor>& in) { return reference::gelu(in[0]); }

TEST(Add, IsRoundedOnceAndMayBeInPlace) {
  for_each_case([](at::ScalarType dtype) {
    for (const int64_t count : {0, 1, 1023, 1024, 5000}) {
      const auto a = random({count}, dtype, 1), b = random({count}, dtype, 2), y = unwritten({count}, dtype);
      add_forward(y, a, b);
      expect_same_bits(y, a + b, "y");
      const auto in_place = b.clone();
      add_forward(in_place, a, in_place);
      expect_same_bits(in_place, y, "y in place of b");
    }
  });
}

TEST(Add, KeepsInfinitiesAndNaNs) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const auto a = at::tensor({inf, -inf, nan, 3.38e38f, 1.0f}).to(at::kBFloat16), y = a.clone();
  add_forward(y, a, at::tensor({1.0f, 1.0f, 1.0f, 3e38f, 0.0039f}).to(at::kBFloat16));
  EXPECT_EQ(y[0].item<float>(), inf);
  EXPECT_EQ(y[1].item<float>(), -inf);
  EXPECT_TRUE(std::isnan(y[2].item<float>()));
  EXPECT_EQ(y[3].item<float>(), inf);
  EXPECT_EQ(y[4].item<float>(), 1.0f);  // 1.0039 is just under half a step above 1
}

TEST(Add, RoundsTiesToEvenOnEveryInstructionSet) {
  for_each_case([](at::ScalarType dtype) {
    if (!is_narrow(dtype)) return;
    // 1 + k/128 (float16: k/1024) has no bits to spare; half a step more lies between two neighbours. Pairs and a tail.
    const float steps = dtype == at::kHalf ? 1024 : 128;
    const auto a = (at::arange(77, at::kFloat) / steps + 1).to(dtype), b = at::full({77}, 0.5f / steps).to(dtype);
    const auto y = unwritten({77}, dtype);
    add_forward(y, a, b);
    expect_same_bits(y, (a.to(at::kFloat) + b.to(at::kFloat)).to(dtype), "ties");
  });
}

// Every half as an addend of 0, and every float near the edges of the type, against LibTorch's conversions.
TEST(Halves, AreWidenedAndRoundedAsByLibTorchOnEveryInstructionSet) {
  const auto every = at::arange(-32768, 32768, at::kShort).view(at::kHalf);
  const auto edges = at::tensor({65504.0f, 65519.0f, 65520.0f, 65536.0f, 1e30f, 6.1e-5f, 6.097e-5f, 5.96e-8f, 2.98e-8f,
                                 2.9803e-8f, 2.97e-8f, 8.94e-8f, 8.9407e-8f, 1.4901e-7f, 0.0f});
  const auto floats = at::cat({edges, -edges, at::arange(70000, at::kFloat).mul(0x1p-31f).view(-1)});
  for_each_case([&](at::ScalarType dtype) {
    if (dtype != at::kHalf) return;
    const auto y = unwritten(every.sizes(), dtype);
    add_forward(y, every, at::zeros_like(every));
    const auto exact = every.to(at::kFloat) + 0.0f;
    EXPECT_TRUE(at::equal(y.isnan(), exact.isnan()));
    EXPECT_TRUE(at::equal(at::nan_to_num(y.to(at::kFloat), 1.5), at::nan_to_num(exact, 1.5)));
    const auto sums = unwritten(every.sizes(), at::kFloat);
    sums.zero_();
    accumulate(sums, every);
    EXPECT_TRUE(at::equal(at::nan_to_num(sums, 1.5), at::nan_to_num(exact, 1.5)));
    const auto rounded = unwritten(floats.sizes(), dtype);
    write_gradient(rounded, floats);
    EXPECT_TRUE(at::equal(rounded, floats.to(dtype)));
  });
  const auto bits = every.view(at::kShort);
  for (int64_t i = 0; i < every.numel(); ++i) {
    const float16 half{static_cast<uint16_t>(bits.data_ptr<int16_t>()[i])};
    const auto same = static_cast<float>(every.data_ptr<at::Half>()[i]);
    if (std::isnan(same))
      ASSERT_TRUE(std::isnan(widen(half)));
    else
      ASSERT_EQ(widen(half), same);
  }
  for (int64_t i = 0; i < floats.numel(); ++i)
    ASSERT_EQ(narrow<float16>(floats.data_ptr<float>()[i]).bits, at::Half(floats.data_ptr<float>()[i]).x);
}

// Results past the caches are written by other instructions; 72 MiB exceed the last cache of any core's here.
TEST(Elementwise, ResultsTooLargeForTheCachesHaveTheSameBits) {
  const int64_t rows = 2 * base::last_level_cache_bytes() / 2 / 512 + 3, width = 512;
  const auto gate_up = repeated(random({4099, 2 * width}, at::kBFloat16, 1), rows),
             y = unwritten({rows, width}, at::kBFloat16);
  const auto part = [&](const at::Tensor& t) { return t.narrow(0, rows - 5, 5).clone(); };
  const auto few = unwritten({5, width}, at::kBFloat16), a = gate_up.view({2 * rows, width}).narrow(0, 0, rows);
  swiglu_forward(y, gate_up);
  swiglu_forward(few, part(gate_up));
  expect_same_bits(part(y), few, "swiglu");
  EXPECT_FALSE(y.isnan().any().item<bool>());
  ops::gelu_forward(y, a);
  ops::gelu_forward(few, part(a));
  expect_same_bits(part(y), few, "gelu");
  add_forward(y, a, gate_up.view({2 * rows, width}).narrow(0, rows, rows));
  expect_same_bits(y, a + gate_up.view({2 * rows, width}).narrow(0, rows, rows), "sum");
}

TEST(Accumulate, IsRoundedOnceInEveryPairOfTypes) {
  for_each_case([](at::ScalarType dtype) {
    for (const auto sum_dtype : {dtype, wide(dtype), at::kDouble}) {
      for (const std::vector<int64_t>& shape :
           std::vector<std::vector<int64_t>>{{0}, {1}, {1023}, {8, 128}, {3, 17, 101}}) {
        const auto x = random(shape, dtype, 1), sum = random(shape, sum_dtype, 2);
        const auto expected = reference::accumulate(sum, x);
        accumulate(sum, x);
        expect_same_bits(sum, expected, c10::toString(sum_dtype));
      }
    }
  });
  expect_same_on_all_threads([] {
    const auto sum = random({70000}, at::kFloat, 1);
    accumulate(sum, random({70000}, at::kBFloat16, 2));
    return std::vector{sum};
  });
}

TEST(Accumulate, RefusesANarrowerSumAndAnotherShape) {
  EXPECT_THROW(accumulate(at::zeros({4}, at::kBFloat16), at::zeros({4})), ShapeError);
  EXPECT_THROW(accumulate(at::zeros({4}), at::zeros({4}, at::kDouble)), ShapeError);
  EXPECT_THROW(accumulate(at::zeros({4}), at::zeros({5})), ShapeError);
  EXPECT_THROW(accumulate(at::zeros({4, 2}).t(), at::zeros({2, 4})), ShapeError);
  EXPECT_THROW(accumulate(at::zeros({4}), at::zeros({4}, at::kLong)), ShapeError);
}

template <auto Forward, auto Backward, auto Reference>
void gated_agrees_with_the_reference() {
  for_each_case([](at::ScalarType dtype) {
    for (const auto& [rows, width] : kElementwiseSizes) {
      const auto gate_up = random({rows, 2 * width}, dtype, 1) * 4, dy = random({rows, width}, dtype, 2);
      const auto y = unwritten({rows, width}, dtype);
      Forward(y, gate_up);
      expect_close(y, Reference({gate_up.to(at::kDouble)}), "y");
      const auto gradient = autograd(Reference, {gate_up}, dy)[0];
      const auto d_gate_up = gate_up.clone(), dy_then_y = dy.clone();
      Backward(d_gate_up, dy_then_y);
      expect_close(d_gate_up, gradient, "d_gate_up");
      expect_same_bits(dy_then_y, y, "y in place of dy");
    }
  });
}

TEST(Swiglu, AgreesWithTheReference) {
  gated_agrees_with_the_reference<swiglu_forward, swiglu_backward, swiglu_reference>();
}
TEST(Geglu, AgreesWithTheReference) {
  gated_agrees_with_the_reference<geglu_forward, geglu_backward, geglu_reference>();
}

TEST(Gelu, AgreesWithTheReference) {
  for_each_case([](at::ScalarType dtype) {
    for (const auto& [rows, width] : kElementwiseSizes) {
      const auto x = random({rows, width}, dtype, 1) * 3, dy = random({rows, width}, dtype, 2);
      const auto y = unwritten({rows, width}, dtype);
      ops::gelu_forward(y, x);
      expect_close(y, reference::gelu(x.to(at::kDouble)), "y");
      const auto gradient = autograd(gelu_reference, {x}, dy)[0];
      const auto dx = x.clone(), dy_then_y = dy.clone();
      ops::gelu_backward(dx, dy_then_y);
      expect_close(dx, gradient, "dx");
      expect_same_bits(dy_then_y, y, "y in place of dy");
    }
  });
}

/// Each value by itself, over the whole range: the sum norm of the tests above would hide small values.
TEST(Swiglu, SiluIsAccurateForEveryValueAndNeverOverflows) {
  for_each_case([](at::ScalarType dtype) {
    const double largest = dtype == at::kHalf ? 6e4 : 1e30;
    const auto gate =
        at::cat({at::linspace(-86, 90, 10001, at::kDouble), at::tensor({-largest, -1e4, 1e4, largest}, at::kDouble)})
            .to(dtype)
            .unsqueeze(1);
    const auto y = unwritten({gate.size(0), 1}, dtype);
    swiglu_forward(y, at::cat({gate, at::ones_like(gate)}, 1).contiguous());
    const auto exact = reference::swiglu(at::cat({gate, at::ones_like(gate)}, 1).to(at::kDouble));
    // Halves below 6e-5 are multiples of 6e-8.
    const auto error = (y.to(at::kDouble) - exact).abs() / exact.abs().clamp_min(dtype == at::kHalf ? 6e-5 : 1e-36);
    // exp within 2 ulp, then an addition, a division and two products: 6 units in the last place.
    const double ulp = dtype == at::kDouble ? 1.2e-16 : dtype == at::kFloat ? 6e-8 : 4e-3;
    EXPECT_LE(error.max().item<double>(), dtype == at::kHalf ? 5e-4 : 6 * ulp);
  });
}

/// Each value by itself, small ones above all: their tanh is not to be a difference of numbers near 1.
TEST(Softcap, IsAccurateForEveryValue) {
  for_each_case([](at::ScalarType dtype) {
    const auto size = at::logspace(-12, 9, 4001, 2, at::kDouble);
    const auto x = at::cat({-size, size, at::tensor({0.0, 1e4, dtype == at::kHalf ? -6e4 : -1e30}, at::kDouble)})
                       .unsqueeze(0)
                       .to(dtype);
    const auto y = x.clone();
    at::Tensor exact;
    for (const double cap : {0.01, dtype == at::kHalf ? 6e4 : 1e6, 30.0}) {
      y.copy_(x);
      exact = reference::softcap(x.to(at::kDouble), cap);
      softcap_forward(y, cap);
      // Halves below 6e-5 are multiples of 6e-8.
      const auto error = (y.to(at::kDouble) - exact).abs() / exact.abs().clamp_min(dtype == at::kHalf ? 6e-5 : 1e-36);
      // tanh within 4 ulp and two products; of two bytes half of a unit in the last place, and what tanh adds.
      EXPECT_LE(error.max().item<double>(), dtype == at::kDouble  ? 1e-15
                                            : dtype == at::kFloat ? 5e-7
                                            : dtype == at::kHalf  ? 5e-4
                                                                  : 4e-3)
          << cap;
      expect_close(y, exact, "y");
    }
    softcap_forward(y, 0);
    expect_close(y, exact, "not capped again");
    EXPECT_THROW(softcap_forward(y, -1), ShapeError);
    EXPECT_THROW(softcap_forward(y, 1e-20), ShapeError);
    EXPECT_THROW(softcap_forward(y, INFINITY), ShapeError);
  });
}

TEST(Activations, KeepNaN) {
  const auto nan = at::full({1, 2}, std::numeric_limits<double>::quiet_NaN(), at::kFloat);
  const auto y = at::zeros({1, 1}), z = at::zeros({1, 2});
  swiglu_forward(y, nan);
  EXPECT_TRUE(std::isnan(y.item<float>()));
  ops::gelu_forward(z, nan);
  EXPECT_TRUE(z.isnan().all().item<bool>());
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto x = nan.to(dtype);
    softcap_forward(x, 30);
    EXPECT_TRUE(x.isnan().all().item<bool>());
  }
}

TEST(Activations, BackwardAgreesWithFiniteDifferences) {
  const auto gate_up = random({3, 10}, at::kDouble, 1), dy = random({3, 5}, at::kDouble, 2);
  const auto swiglu = [](const std::vector<at::Tensor>& in) {
    const auto y = unwritten({in[0].size(0), in[0].size(1) / 2}, at::kDouble);
    swiglu_forward(y, in[0]);
    return y;
  };
  auto expected = finite_differences(swiglu, {gate_up}, dy)[0];
  const auto d_gate_up = gate_up.clone();
  swiglu_backward(d_gate_up, dy.clone());
  EXPECT_LE(relative_error(d_gate_up, expected), 1e-8);

  const auto gelu = [](const std::vector<at::Tensor>& in) {
    const auto y = unwritten(in[0].sizes(), at::kDouble);
    ops::gelu_forward(y, in[0]);
    return y;
  };
  const auto x = random({3, 5}, at::kDouble, 3), dx = x.clone();
  expected = finite_differences(gelu, {x}, dy)[0];
  ops::gelu_backward(dx, dy.clone());
  EXPECT_LE(relative_error(dx, expected), 1e-8);
}

TEST(Activations, HaveTheSameBitsOnAnyNumberOfThreads) {
  const auto gate_up = random({500, 2 * 131}, at::kFloat, 1), dy = random({500, 131}, at::kFloat, 2);
  expect_same_on_all_threads([&] {
    const auto d_gate_up = gate_up.clone(), dy_then_y = dy.clone(), dx = dy.clone(), y = dy.clone();
    swiglu_backward(d_gate_up, dy_then_y);
    ops::gelu_backward(dx, y);
    return std::vector{d_gate_up, dy_then_y, dx, y};
  });
}

}  // namespace
}  // namespace trireme::ops::test
