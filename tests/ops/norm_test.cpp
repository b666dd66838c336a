#include <gtest/gtest.h>

#include "tests/ops/reference.h"
#include "tests/ops/support.h"
#include "trireme/base/processor.h"
#include "trireme/machine/limits.h"
#include "trireme/ops/ops.h"

namespace trireme::ops::test {
namespace {

constexpr double kNormEps = 1e-5;
struct NormSize {
  int64_t rows, width;
};
const NormSize kNormSizes[] = {{1, 1}, {1, 7}, {5, 64}, {70, 67}, {3, 300}};

at::Tensor rms_reference(const std::vector<at::Tensor>& in) { return reference::rms_norm(in[0], in[1], kNormEps); }
at::Tensor offset_reference(const std::vector<at::Tensor>& in) {
  return reference::rms_norm(in[0], in[1], kNormEps, 1);
}
at::Tensor layer_reference(const std::vector<at::Tensor>& in) {
  return reference::layer_norm(in[0], in[1], in[2], kNormEps);
}
std::vector<at::Tensor> to_double(std::vector<at::Tensor> tensors) {
  for (auto& tensor : tensors) tensor = tensor.to(at::kDouble);
  return tensors;
}

TEST(RmsNorm, ForwardAgreesWithTheReference) {
  for_each_case([](at::ScalarType dtype) {
    for (const auto& [rows, width] : kNormSizes) {
      const auto x = random({rows, width}, dtype, 1), w = random({width}, dtype, 2);
      const auto y = unwritten(x.sizes(), dtype), rstd = unwritten({rows}, wide(dtype));
      rms_norm_forward(y, rstd, x, w, kNormEps);
      expect_close(y, rms_reference(to_double({x, w})), "y");
      expect_close(rstd, reference::rms_norm_rstd(x.to(at::kDouble), kNormEps), "rstd");
    }
  });
}

TEST(RmsNorm, BackwardAgreesWithTheReferenceAndEmitsTheForwardAgain) {
  for_each_case([](at::ScalarType dtype) {
    for (const auto& [rows, width] : kNormSizes) {
      const auto x = random({rows, width}, dtype, 1), w = random({width}, dtype, 2),
                 dy = random({rows, width}, dtype, 3), d_residual = random({rows, width}, dtype, 4);
      const auto y = unwritten(x.sizes(), dtype), rstd = unwritten({rows}, wide(dtype));
      rms_norm_forward(y, rstd, x, w, kNormEps);
      const auto gradients = autograd(rms_reference, {x, w}, dy);

      const auto dx = unwritten(x.sizes(), dtype), dw = unwritten({width}, dtype),
                 y_again = unwritten(x.sizes(), dtype);
      rms_norm_backward(dx, dw, y_again, dy, x, w, rstd, {});
      expect_close(dx + 1, gradients[0] + 1, "dx");  // + 1: with width 1 the gradient is 0 but for eps
      expect_close(dw, gradients[1], "dw");
      expect_same_bits(y_again, y, "y");

      // In place: dx starts as d_residual, and y takes the place of dy.
      const auto sum = d_residual.clone(), dy_then_y = dy.clone(), dw_again = unwritten({width}, dtype);
      rms_norm_backward(sum, dw_again, dy_then_y, dy_then_y, x, w, rstd, sum);
      expect_close(sum, gradients[0] + d_residual.to(at::kDouble), "dx + d_residual");
      expect_same_bits(dy_then_y, y, "y in place of dy");
      expect_same_bits(dw_again, dw, "dw in place");
    }
  });
}

TEST(RmsNorm, WithAdditionEqualsAdditionThenNorm) {
  for_each_case([](at::ScalarType dtype) {
    const auto x = random({5, 67}, dtype, 1), residual = random({5, 67}, dtype, 2), w = random({67}, dtype, 3);
    const auto expected_sum = unwritten(x.sizes(), dtype), expected_y = unwritten(x.sizes(), dtype),
               expected_rstd = unwritten({5}, wide(dtype));
    add_forward(expected_sum, x, residual);
    rms_norm_forward(expected_y, expected_rstd, expected_sum, w, kNormEps);
    for (const bool in_place : {false, true}) {
      const auto sum = in_place ? x.clone() : unwritten(x.sizes(), dtype);
      const auto y = unwritten(x.sizes(), dtype), rstd = unwritten({5}, wide(dtype));
      add_rms_norm_forward(sum, y, rstd, in_place ? sum : x, residual, w, kNormEps);
      expect_same_bits(sum, expected_sum, "sum");
      expect_same_bits(y, expected_y, "y");
      expect_same_bits(rstd, expected_rstd, "rstd");
    }
  });
}

/// Gemma: what is stored is the weight's distance from 1.
TEST(RmsNorm, WeightsMayBeDistancesFromANumber) {
  for_each_case([](at::ScalarType dtype) {
    for (const auto& [rows, width] : kNormSizes) {
      const auto x = random({rows, width}, dtype, 1), w = random({width}, dtype, 2) * 0.3,
                 dy = random({rows, width}, dtype, 3), residual = random({rows, width}, dtype, 4);
      const auto y = unwritten(x.sizes(), dtype), rstd = unwritten({rows}, wide(dtype));
      rms_norm_forward(y, rstd, x, w, kNormEps, 1);
      expect_close(y, offset_reference(to_double({x, w})), "y");

      const auto gradients = autograd(offset_reference, {x, w}, dy);
      const auto dx = residual.clone(), dw = unwritten({width}, dtype), y_again = unwritten(x.sizes(), dtype);
      rms_norm_backward(dx, dw, y_again, dy, x, w, rstd, dx, 1);
      expect_close(dx, gradients[0] + residual.to(at::kDouble), "dx + d_residual");
      expect_close(dw, gradients[1], "dw");
      expect_same_bits(y_again, y, "y");

      const auto sum = unwritten(x.sizes(), dtype), y_of_sum = unwritten(x.sizes(), dtype);
      add_rms_norm_forward(sum, y_of_sum, rstd, x, residual, w, kNormEps, 1);
      expect_close(y_of_sum, offset_reference(to_double({sum, w})), "y of the sum");
    }
  });
}

TEST(LayerNorm, ForwardAgreesWithTheReference) {
  for_each_case([](at::ScalarType dtype) {
    for (const auto& [rows, width] : kNormSizes) {
      // A large mean: the variance must not be computed as a difference of large numbers.
      const auto x = (random({rows, width}, dtype, 1) + 30).to(dtype), w = random({width}, dtype, 2),
                 b = random({width}, dtype, 3), residual = random({rows, width}, dtype, 4);
      const auto y = unwritten(x.sizes(), dtype), mean = unwritten({rows}, wide(dtype)),
                 rstd = unwritten({rows}, wide(dtype));
      layer_norm_forward(y, mean, rstd, x, w, b, kNormEps);
      const auto x_wide = x.to(at::kDouble);
      // The float32 row mean is off by its own rounding, 30 x 6e-8, which the division by a small rstd leaves.
      const auto expected = layer_reference(to_double({x, w, b}));
      EXPECT_LE(relative_error(y, expected), dtype == at::kFloat && width > 1 ? 5e-5 : tolerance(dtype) * 20);
      expect_close(mean, x_wide.mean(1), "mean");

      const auto sum = unwritten(x.sizes(), dtype), y2 = unwritten(x.sizes(), dtype),
                 mean2 = unwritten({rows}, wide(dtype)), rstd2 = unwritten({rows}, wide(dtype)),
                 expected_sum = unwritten(x.sizes(), dtype);
      add_layer_norm_forward(sum, y2, mean2, rstd2, x, residual, w, b, kNormEps);
      add_forward(expected_sum, x, residual);
      layer_norm_forward(y, mean, rstd, expected_sum, w, b, kNormEps);
      expect_same_bits(sum, expected_sum, "sum");
      expect_same_bits(y2, y, "y of the sum");
      expect_same_bits(mean2, mean, "mean of the sum");
      expect_same_bits(rstd2, rstd, "rstd of the sum");
    }
  });
}

TEST(LayerNorm, BackwardAgreesWithTheReferenceAndEmitsTheForwardAgain) {
  for_each_case([](at::ScalarType dtype) {
    for (const auto& [rows, width] : kNormSizes) {
      if (width == 1) continue;  // the gradient is zero
      const auto x = random({rows, width}, dtype, 1), w = random({width}, dtype, 2), b = random({width}, dtype, 3),
                 dy = random({rows, width}, dtype, 4), d_residual = random({rows, width}, dtype, 5);
      const auto y = unwritten(x.sizes(), dtype), mean = unwritten({rows}, wide(dtype)),
                 rstd = unwritten({rows}, wide(dtype));
      layer_norm_forward(y, mean, rstd, x, w, b, kNormEps);
      expect_close(y, layer_reference(to_double({x, w, b})), "y");
      const auto gradients = autograd(layer_reference, {x, w, b}, dy);

      const auto sum = d_residual.clone(), dy_then_y = dy.clone(), dw = unwritten({width}, dtype),
                 db = unwritten({width}, dtype);
      layer_norm_backward(sum, dw, db, dy_then_y, dy_then_y, x, w, b, mean, rstd, sum);
      expect_close(sum, gradients[0] + d_residual.to(at::kDouble), "dx + d_residual");
      expect_close(dw, gradients[1], "dw");
      expect_close(db, gradients[2], "db");
      expect_same_bits(dy_then_y, y, "y in place of dy");
    }
  });
}

TEST(Norms, BackwardAgreesWithFiniteDifferences) {
  const auto x = random({3, 9}, at::kDouble, 1), w = random({9}, at::kDouble, 2), b = random({9}, at::kDouble, 3),
             dy = random({3, 9}, at::kDouble, 4);
  const auto y = unwritten(x.sizes(), at::kDouble), mean = unwritten({3}, at::kDouble),
             rstd = unwritten({3}, at::kDouble), dx = unwritten(x.sizes(), at::kDouble),
             dw = unwritten({9}, at::kDouble), db = unwritten({9}, at::kDouble);
  const auto ours_rms = [&](const std::vector<at::Tensor>& in) {
    rms_norm_forward(y, rstd, in[0], in[1], kNormEps);
    return y.clone();
  };
  // Central differences with step 1e-5 are good to about 1e-10 of the function's size.
  auto gradients = finite_differences(ours_rms, {x, w}, dy);
  ours_rms({x, w});
  rms_norm_backward(dx, dw, y, dy, x, w, rstd, {});
  EXPECT_LE(relative_error(dx, gradients[0]), 1e-8);
  EXPECT_LE(relative_error(dw, gradients[1]), 1e-8);

  const auto ours_layer = [&](const std::vector<at::Tensor>& in) {
    layer_norm_forward(y, mean, rstd, in[0], in[1], in[2], kNormEps);
    return y.clone();
  };
  gradients = finite_differences(ours_layer, {x, w, b}, dy);
  ours_layer({x, w, b});
  layer_norm_backward(dx, dw, db, y, dy, x, w, b, mean, rstd, {});
  EXPECT_LE(relative_error(dx, gradients[0]), 1e-8);
  EXPECT_LE(relative_error(dw, gradients[1]), 1e-8);
  EXPECT_LE(relative_error(db, gradients[2]), 1e-8);
}

TEST(Norms, HaveTheSameBitsOnAnyNumberOfThreadsAndInAnyBatch) {
  const auto dtype = at::kBFloat16;
  const auto x = random({600, 129}, dtype, 1), w = random({129}, dtype, 2), dy = random({600, 129}, dtype, 3);
  expect_same_on_all_threads([&] {
    const auto y = unwritten(x.sizes(), dtype), rstd = unwritten({600}, at::kFloat), dx = unwritten(x.sizes(), dtype),
               dw = unwritten({129}, dtype);
    rms_norm_forward(y, rstd, x, w, kNormEps);
    rms_norm_backward(dx, dw, y, dy, x, w, rstd, {});
    return std::vector{y, rstd, dx, dw};
  });
  const auto y = unwritten(x.sizes(), dtype), rstd = unwritten({600}, at::kFloat), row = unwritten({1, 129}, dtype),
             row_rstd = unwritten({1}, at::kFloat);
  rms_norm_forward(y, rstd, x, w, kNormEps);
  rms_norm_forward(row, row_rstd, x.narrow(0, 77, 1), w, kNormEps);
  expect_same_bits(row, y.narrow(0, 77, 1), "row 77 alone");
}

// Results past the caches are written by other instructions; those that take an input's place are not.
TEST(Norms, ResultsTooLargeForTheCachesHaveTheSameBits) {
  const auto dtype = at::kBFloat16;
  const int64_t width = 512, rows = base::last_level_cache_bytes() / 2 / width + 3, few = 5;
  const auto x = repeated(random({4099, width}, dtype, 1), rows), w = random({width}, dtype, 2),
             b = random({width}, dtype, 3);
  const auto part = [&](const at::Tensor& t) { return t.narrow(0, rows - few, few).clone(); };
  const auto all_rows = unwritten({rows, width}, dtype), few_rows = unwritten({few, width}, dtype);
  const auto mean = unwritten({rows}, at::kFloat), rstd = unwritten({rows}, at::kFloat);
  const auto dw = unwritten({width}, dtype), db = unwritten({width}, dtype);

  layer_norm_forward(all_rows, mean, rstd, x, w, b, kNormEps);
  layer_norm_forward(few_rows, part(mean), part(rstd), part(x), w, b, kNormEps);
  expect_same_bits(part(all_rows), few_rows, "forward");
  const auto sum = unwritten({rows, width}, dtype), few_sums = unwritten({few, width}, dtype), other = x.flip(1);
  add_layer_norm_forward(sum, all_rows, mean, rstd, x, other, w, b, kNormEps);
  add_layer_norm_forward(few_sums, few_rows, part(mean), part(rstd), part(x), part(other), w, b, kNormEps);
  expect_same_bits(part(sum), few_sums, "sum");
  expect_same_bits(part(all_rows), few_rows, "forward of the sum");
  const auto y = unwritten({rows, width}, dtype), few_y = unwritten({few, width}, dtype);
  layer_norm_backward(all_rows, dw, db, y, x, x, w, b, mean, rstd, {});
  layer_norm_backward(few_rows, dw, db, few_y, part(x), part(x), w, b, part(mean), part(rstd), {});
  expect_same_bits(part(all_rows), few_rows, "dx");
  expect_same_bits(part(y), few_y, "y again");
  const auto in_place = x.clone();
  layer_norm_backward(in_place, dw, db, y, x, x, w, b, mean, rstd, in_place);
  layer_norm_backward(few_rows, dw, db, few_y, part(x), part(x), w, b, part(mean), part(rstd), part(x));
  expect_same_bits(part(in_place), few_rows, "dx in the residual's place");
  expect_same_bits(part(y), few_y, "y beside dx in place");

  const auto raw = unwritten({rows, width}, dtype), qkv = at::cat({x, x.narrow(1, 0, 64)}, 1).contiguous(),
             before = part(qkv), w_head = w.narrow(0, 0, 64);
  head_norm_forward(qkv, raw, unwritten({rows, 8}, at::kFloat), w_head, w_head, 7, 1, kNormEps);
  head_norm_forward(before, few_rows, unwritten({few, 8}, at::kFloat), w_head, w_head, 7, 1, kNormEps);
  expect_same_bits(part(qkv), before, "heads");
  expect_same_bits(part(raw), few_rows, "what was in the heads");
}

}  // namespace
}  // namespace trireme::ops::test
