#include <memory>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gmock/gmock.h>

#include "tests/ops/reference.h"
#include "tests/ops/support.h"
#include "trireme/base/error.h"
#include "trireme/ops/ops.h"

namespace trireme::ops::test {
namespace {

struct LinearSize {
  int64_t tokens, inputs, outputs;
};
// One token, widths that no vector length divides, and a common case.
const LinearSize kLinearSizes[] = {{1, 5, 7}, {3, 17, 31}, {64, 48, 96}};

void check_against_reference(at::ScalarType dtype, bool in_out) {
  for (const auto& [tokens, inputs, outputs] : kLinearSizes) {
    const auto x = random({tokens, inputs}, dtype, 1), dy = random({tokens, outputs}, dtype, 2);
    const auto w = in_out ? random({inputs, outputs}, dtype, 3) : random({outputs, inputs}, dtype, 3);
    const auto y = unwritten({tokens, outputs}, dtype), dx = unwritten(x.sizes(), dtype),
               dw = unwritten(w.sizes(), dtype);
    (in_out ? linear_in_out_forward : linear_forward)(y, x, w);
    (in_out ? linear_in_out_backward_input : linear_backward_input)(dx, dy, w);
    (in_out ? linear_in_out_backward_weight : linear_backward_weight)(dw, dy, x);

    const auto reference = [&](const auto& in) {
      return in_out ? reference::linear_in_out(in[0], in[1]) : reference::linear(in[0], in[1]);
    };
    expect_close(y, reference(std::vector{x.to(at::kDouble), w.to(at::kDouble)}), "y");
    const auto gradients = autograd(reference, {x, w}, dy);
    expect_close(dx, gradients[0], "dx");
    expect_close(dw, gradients[1], "dw");
  }
}

TEST(Linear, AgreesWithTheReference) {
  for_each_case([](at::ScalarType dtype) { check_against_reference(dtype, false); });
}

TEST(Linear, WithWeightStoredInOutAgreesWithTheReference) {
  for_each_case([](at::ScalarType dtype) { check_against_reference(dtype, true); });
}

/// Counts what LibTorch's CPU allocator hands out on this thread.
struct AllocationCounter : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
    if (size > 0) bytes += size;
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t bytes = 0;
};

TEST(Linear, WritesIntoAFlatBufferWithoutCopies) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const int64_t tokens = 512, inputs = 1024, outputs = 1024;  // each matrix has at least 1 MiB
    const auto x = random({tokens, inputs}, dtype, 1), dy = random({tokens, outputs}, dtype, 2),
               w = random({outputs, inputs}, dtype, 3);
    // The gradient lies in the middle of a flat buffer, 4096 elements in, as it does in training.
    const auto flat = unwritten({4096 + outputs * inputs + 1}, dtype);
    const auto dw = flat.narrow(0, 4096, outputs * inputs).view({outputs, inputs});
    const auto y = unwritten({tokens, outputs}, dtype), dx = unwritten({tokens, inputs}, dtype);
    const auto step = [&] {
      linear_forward(y, x, w);
      linear_backward_input(dx, dy, w);
      linear_backward_weight(dw, dy, x);
    };
    step();  // oneDNN compiles its kernels
    const auto counter = std::make_shared<AllocationCounter>();
    {
      c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
      at::empty({1000}, at::kByte);
      EXPECT_GE(counter->bytes, 1000) << "the counter does not count";
      counter->bytes = 0;
      step();
    }
    // oneDNN takes scratch for its tiles from LibTorch's allocator, 0.6 MiB over the three calls; a copy of any
    // operand or result would be more.
    EXPECT_LT(counter->bytes, dtype == at::kBFloat16 ? 1 << 20 : 1) << c10::toString(dtype);
    EXPECT_TRUE(flat.narrow(0, 0, 4096).isnan().all().item<bool>());
    EXPECT_TRUE(flat.narrow(0, 4096 + outputs * inputs, 1).isnan().all().item<bool>());
    expect_close(dw, at::matmul(dy.t().to(at::kDouble), x.to(at::kDouble)), "dw");
  }
}

TEST(Linear, RefusesTensorsThatDoNotFit) {
  const auto x = at::zeros({3, 4}), w = at::zeros({5, 4});
  const auto message = [&](const at::Tensor& y, const at::Tensor& x_, const at::Tensor& w_) -> std::string {
    try {
      linear_forward(y, x_, w_);
    } catch (const ShapeError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message(at::zeros({3, 6}), x, w),
            "linear_forward: y is CPU float32 [3, 6]; it must be contiguous CPU float32 [3, 5]");
  EXPECT_EQ(message(at::zeros({3, 5}), x.to(at::kLong), w.to(at::kLong)),
            "linear_forward: w is CPU int64 [5, 4]; operations compute in float64, float32, bfloat16 or float16");
  EXPECT_EQ(message(at::zeros({5, 3}).t(), x, w),
            "linear_forward: y is non-contiguous CPU float32 [3, 5]; it must be contiguous CPU float32 [3, 5]");
  EXPECT_EQ(message({}, x, w), "linear_forward: y is undefined; it must be contiguous CPU float32 [3, 5]");
}

TEST(Bias, IsAddedToEveryRow) {
  for_each_case([](at::ScalarType dtype) {
    for (const auto& [tokens, inputs, outputs] : kLinearSizes) {
      const auto before = random({tokens, outputs}, dtype, 1), bias = random({outputs}, dtype, 2);
      const auto y = before.clone();
      bias_forward(y, bias);
      expect_close(y, reference::bias(before.to(at::kDouble), bias.to(at::kDouble)), "y");
    }
  });
}

TEST(Bias, GradientIsTheSumOverRows) {
  for_each_case([](at::ScalarType dtype) {
    for (const int64_t tokens : {0, 1, 31, 33, 1000}) {
      const auto dy = random({tokens, 19}, dtype, 1);
      const auto dbias = unwritten({19}, dtype);
      bias_backward(dbias, dy);
      expect_close(dbias, dy.to(at::kDouble).sum(0), "dbias");
    }
  });
}

TEST(Bias, GradientHasTheSameBitsOnAnyNumberOfThreads) {
  const auto dy = random({1000, 257}, at::kBFloat16, 1);
  expect_same_on_all_threads([&] {
    const auto dbias = unwritten({257}, at::kBFloat16);
    bias_backward(dbias, dy);
    return std::vector{dbias};
  });
}

}  // namespace
}  // namespace trireme::ops::test
