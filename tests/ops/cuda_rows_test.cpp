// Row-wise operations on a GPU: what they leave there against what they leave on the CPU, and the same bits twice.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/ops/cuda_support.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/ops.h"

namespace trireme::ops {
namespace {

using Tensors = std::vector<at::Tensor>;

struct Result {
  at::Tensor tensor;
  double slack = 1;  ///< times the bound of its dtype
};
/// Sums over 1000 rows in another order: some tens of roundings of partial sums where one result has one.
constexpr double kSummed = 4;
/// Statistics of bfloat16 rows are taken in one pass on the CPU, in two here.
constexpr double kStatistics = 4;

struct Size {
  int64_t rows, width;
};
// Packs and single elements; a warp's, a block's, and more than it keeps of a row.
const Size kSizes[] = {{1, 8},    {5, 37},    {1000, 40}, {1000, 37}, {3, 768},   {1000, 768},
                       {7, 4096}, {70, 4096}, {3, 5001},  {3, 12288}, {6, 20000}, {2, 32768}};

/// So that an element that is not written shows.
at::Tensor poisoned(at::IntArrayRef shape, at::ScalarType dtype, const at::Tensor& beside) {
  return at::full(shape, std::numeric_limits<double>::quiet_NaN(), beside.options().dtype(dtype));
}
at::Tensor poisoned_like(const at::Tensor& x) { return poisoned(x.sizes(), x.scalar_type(), x); }

/// `compute` gets copies of `inputs` that it may overwrite.
void expect_same_as_on_the_cpu(const std::function<std::vector<Result>(const Tensors&)>& compute, const Tensors& inputs,
                               const std::string& what) {
  const auto run = [&](at::Device device) {
    Tensors copies;
    for (const auto& input : inputs) copies.push_back(input.to(device, input.scalar_type(), false, true));
    return compute(copies);
  };
  const auto want = run(at::kCPU), got = run(at::kCUDA), again = run(at::kCUDA);
  for (size_t i = 0; i < want.size(); ++i) {
    const auto& tensor = got[i].tensor;
    ASSERT_TRUE(tensor.is_cuda());
    EXPECT_LE(relative_error(tensor, want[i].tensor), want[i].slack * bound_of(tensor.scalar_type()))
        << what << ": result " << i;
    EXPECT_TRUE(at::equal(tensor, again[i].tensor)) << what << ": result " << i << " has other bits the second time";
  }
}

void for_each_dtype(const std::function<void(at::ScalarType)>& check) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(c10::toString(dtype));
    check(dtype);
  }
}
void for_each_size(const std::function<void(at::ScalarType, Size)>& check) {
  for_each_dtype([&](at::ScalarType dtype) {
    for (const Size& size : kSizes) {
      SCOPED_TRACE(testing::Message() << "[" << size.rows << ", " << size.width << "]");
      check(dtype, size);
    }
  });
}
/// Gradients into the compute dtype and the wide one, written and added.
void for_each_gradient(at::ScalarType dtype, const std::function<void(at::ScalarType to, bool adds)>& check) {
  for (const auto to : {dtype, statistics_dtype(dtype)})
    for (const bool adds : {false, true}) {
      SCOPED_TRACE(std::string("gradients ") + (adds ? "added to " : "written to ") + c10::toString(to));
      check(to, adds);
    }
}
/// What a gradient finds: numbers if it is added to them.
at::Tensor found(at::IntArrayRef shape, at::ScalarType dtype, bool adds, int64_t seed) {
  const auto numbers = random(shape, dtype, seed);
  return adds ? numbers : poisoned_like(numbers);
}

TEST_F(Cuda, GatedActivations) {
  for_each_size([](at::ScalarType dtype, Size s) {
    const Tensors inputs{random({s.rows, 2 * s.width}, dtype, 1) * 3, random({s.rows, s.width}, dtype, 2)};
    for (const bool gelu : {false, true}) {
      expect_same_as_on_the_cpu(
          [&](const Tensors& in) {
            const auto y = poisoned_like(in[1]);
            (gelu ? geglu_forward : swiglu_forward)(y, in[0]);
            (gelu ? geglu_backward : swiglu_backward)(in[0], in[1]);
            EXPECT_TRUE(!y.is_cuda() || at::equal(y, in[1])) << "y again";
            return std::vector<Result>{{y}, {in[0]}, {in[1]}};
          },
          inputs, gelu ? "geglu" : "swiglu");
    }
  });
}

TEST_F(Cuda, GeluAndSoftcap) {
  for_each_size([](at::ScalarType dtype, Size s) {
    const Tensors inputs{random({s.rows, s.width}, dtype, 1) * 3, random({s.rows, s.width}, dtype, 2)};
    expect_same_as_on_the_cpu(
        [](const Tensors& in) {
          const auto y = poisoned_like(in[0]), capped = in[0] * 20;
          ops::gelu_forward(y, in[0]);
          ops::gelu_backward(in[0], in[1]);
          EXPECT_TRUE(!y.is_cuda() || at::equal(y, in[1])) << "y again";
          softcap_forward(capped, 30);
          return std::vector<Result>{{y}, {in[0]}, {in[1]}, {capped}};
        },
        inputs, "gelu and softcap");
  });
}

TEST_F(Cuda, ActivationsOverflowNowhere) {
  for_each_dtype([](at::ScalarType dtype) {
    const auto x = at::tensor({-1e30, -1e4, -88.0, -5.0, 0.0, 5.0, 88.0, 1e4, 1e30}, at::kDouble)
                       .to(dtype)
                       .unsqueeze(1)
                       .to(at::kCUDA);
    const auto want = at::relu(x).where(x.abs() > 10, at::zeros_like(x)), far = (x.abs() > 10).to(dtype);
    const auto with_one = at::cat({x, at::ones_like(x)}, 1).contiguous(), y = poisoned_like(x);
    const auto slope = far * (x > 0).to(dtype);
    for (const bool gelu : {false, true}) {
      SCOPED_TRACE(gelu ? "gelu" : "silu");
      const auto gate_up = with_one.clone(), dy = at::ones_like(x);
      (gelu ? geglu_forward : swiglu_forward)(y, gate_up);
      EXPECT_TRUE(at::allclose(y * far, want));
      (gelu ? geglu_backward : swiglu_backward)(gate_up, dy);
      EXPECT_TRUE(at::allclose(gate_up.narrow(1, 0, 1) * far, slope));
      EXPECT_TRUE(at::isfinite(gate_up).all().item<bool>());
    }
    const auto dx = x.clone(), dy = at::ones_like(x);
    ops::gelu_backward(dx, dy);
    EXPECT_TRUE(at::allclose(dx * far, slope));
    EXPECT_TRUE(at::isfinite(dx).all().item<bool>());
  });
}

TEST_F(Cuda, AdditionsHaveTheBitsOfTheCpuInPlaceToo) {
  for_each_dtype([](at::ScalarType dtype) {
    for (const int64_t count : {0, 1, 37, 1024, 5000, 300001}) {
      SCOPED_TRACE(count);
      const auto a = random({count}, dtype, 1), b = random({count}, dtype, 2), want = a + b;
      const auto ga = on_gpu(a), gb = on_gpu(b), y = poisoned_like(ga);
      add_forward(y, ga, gb);
      EXPECT_TRUE(at::equal(y.cpu(), want));
      const auto into_a = ga.clone(), into_b = gb.clone();
      add_forward(into_a, into_a, gb);
      add_forward(into_b, ga, into_b);
      EXPECT_TRUE(at::equal(into_a, y));
      EXPECT_TRUE(at::equal(into_b, y));
    }
    // Begins at no multiple of 16 bytes.
    const auto a = on_gpu(random({1025}, dtype, 1)).narrow(0, 1, 1024), y = poisoned({1024}, dtype, a);
    add_forward(y, a, a);
    EXPECT_TRUE(at::equal(y, a + a));
  });
}

TEST_F(Cuda, AccumulateAndWriteGradient) {
  for_each_dtype([](at::ScalarType dtype) {
    for (const auto sum_dtype : {dtype, statistics_dtype(dtype), at::kDouble})
      for (const int64_t count : {0, 37, 5000}) {
        const auto x = random({count}, dtype, 1), sum = random({count}, sum_dtype, 2), there = on_gpu(sum);
        accumulate(sum, x);
        accumulate(there, on_gpu(x));
        EXPECT_TRUE(at::equal(there.cpu(), sum)) << c10::toString(sum_dtype) << " " << count;
        write_gradient({there, true}, on_gpu(x));
        accumulate(sum, x);
        EXPECT_TRUE(at::equal(there.cpu(), sum)) << c10::toString(sum_dtype) << " " << count;
        write_gradient(there, on_gpu(x));
        EXPECT_TRUE(at::equal(there.cpu(), x.to(sum_dtype))) << c10::toString(sum_dtype) << " " << count;
      }
  });
}

TEST_F(Cuda, Bias) {
  for_each_size([](at::ScalarType dtype, Size s) {
    for_each_gradient(dtype, [&](at::ScalarType to, bool adds) {
      const Tensors inputs{random({s.rows, s.width}, dtype, 1), random({s.width}, dtype, 2),
                           found({s.width}, to, adds, 3)};
      expect_same_as_on_the_cpu(
          [&](const Tensors& in) {
            bias_backward({in[2], adds}, in[0]);
            bias_forward(in[0], in[1]);
            return std::vector<Result>{{in[0]}, {in[2], kSummed}};
          },
          inputs, "bias");
    });
  });
}

struct NormInputs {
  at::Tensor x, residual, w, b, dy;
  NormInputs(Size s, at::ScalarType dtype)
      // Around a number that is not 0, so that the relative error of the mean says something.
      : x((random({s.rows, s.width}, at::kDouble, 1) + 0.5).to(dtype)),
        residual(random({s.rows, s.width}, dtype, 2)),
        w(random({s.width}, dtype, 3)),
        b(random({s.width}, dtype, 4)),
        dy(random({s.rows, s.width}, dtype, 5)) {}
  Tensors all() const { return {x, residual, w, b, dy}; }
};

/// Normalises in[0] = x, and in[0] + in[1] into a sum of its own and in place of either.
std::vector<Result> norm_forwards(const Tensors& in, bool centered, double offset) {
  const auto &x = in[0], &residual = in[1], &w = in[2], &b = in[3];
  std::vector<Result> results;
  const auto statistics = statistics_dtype(x.scalar_type());
  for (int place = -1; place < 3; ++place) {
    const auto own_x = x.clone(), own_residual = residual.clone();
    const auto sum = place == 0 ? poisoned_like(x) : place == 1 ? own_x : own_residual;
    const auto y = poisoned_like(x), mean = poisoned({x.size(0)}, statistics, x), rstd = poisoned_like(mean);
    if (place < 0)
      centered ? layer_norm_forward(y, mean, rstd, x, w, b, 1e-5) : rms_norm_forward(y, rstd, x, w, 1e-5, offset);
    else
      centered ? add_layer_norm_forward(sum, y, mean, rstd, own_x, own_residual, w, b, 1e-5)
               : add_rms_norm_forward(sum, y, rstd, own_x, own_residual, w, 1e-5, offset);
    results.push_back({y});
    results.push_back({rstd, kStatistics});
    if (centered) results.push_back({mean, kStatistics});
    if (place >= 0) results.push_back({sum});
  }
  return results;
}

TEST_F(Cuda, RmsNormForward) {
  for_each_size([](at::ScalarType dtype, Size s) {
    for (const double offset : {0.0, 1.0})
      expect_same_as_on_the_cpu([&](const Tensors& in) { return norm_forwards(in, false, offset); },
                                NormInputs(s, dtype).all(), "offset " + std::to_string(offset));
  });
}
TEST_F(Cuda, LayerNormForward) {
  for_each_size([](at::ScalarType dtype, Size s) {
    expect_same_as_on_the_cpu([&](const Tensors& in) { return norm_forwards(in, true, 0); }, NormInputs(s, dtype).all(),
                              "layer norm");
  });
}

/// in: x, d_residual, w, b, dy, mean, rstd, what dw and db find. With and without a residual; in place: y is dy, and dx
/// the residual's gradient.
std::vector<Result> norm_backward(const Tensors& in, bool adds, bool with_residual, bool in_place, bool centered,
                                  double offset) {
  const auto &x = in[0], &d_residual = in[1], &w = in[2], &b = in[3], &dy = in[4], &mean = in[5], &rstd = in[6],
             &dw = in[7], &db = in[8];
  const auto y = in_place ? dy : poisoned_like(x), dx = in_place && with_residual ? d_residual : poisoned_like(x);
  const at::Tensor added = with_residual ? d_residual : at::Tensor();
  if (!centered) {
    rms_norm_backward(dx, {dw, adds}, y, dy, x, w, rstd, added, offset);
    return {{dx}, {y}, {dw, kSummed}};
  }
  layer_norm_backward(dx, {dw, adds}, {db, adds}, y, dy, x, w, b, mean, rstd, added);
  return {{dx}, {y}, {dw, kSummed}, {db, kSummed}};
}

void expect_norm_backward(at::ScalarType dtype, Size s, bool centered, double offset) {
  for_each_gradient(dtype, [&](at::ScalarType to, bool adds) {
    const NormInputs in(s, dtype);
    Tensors inputs = in.all();
    const auto wide_x = in.x.to(at::kDouble), mean = centered ? wide_x.mean(1) : at::zeros({s.rows}, at::kDouble);
    const auto variance = (wide_x - mean.unsqueeze(1)).square().mean(1);
    for (const auto& statistic : {mean, (variance + 1e-5).rsqrt()})
      inputs.push_back(statistic.to(statistics_dtype(dtype)));
    for (const int64_t seed : {6, 7}) inputs.push_back(found({s.width}, to, adds, seed));
    for (const bool with_residual : {false, true})
      for (const bool in_place : {false, true})
        expect_same_as_on_the_cpu(
            [&](const Tensors& copies) {
              return norm_backward(copies, adds, with_residual, in_place, centered, offset);
            },
            inputs, std::string(with_residual ? "residual" : "no residual") + (in_place ? ", in place" : ""));
  });
}

TEST_F(Cuda, RmsNormBackward) {
  for_each_size([](at::ScalarType dtype, Size s) {
    for (const double offset : {0.0, 1.0}) expect_norm_backward(dtype, s, false, offset);
  });
}
TEST_F(Cuda, LayerNormBackward) {
  for_each_size([](at::ScalarType dtype, Size s) { expect_norm_backward(dtype, s, true, 0); });
}

TEST_F(Cuda, GradientsOfNoRowsAreZeroOrStay) {
  for_each_dtype([](at::ScalarType dtype) {
    for_each_gradient(dtype, [&](at::ScalarType to, bool adds) {
      const auto statistics = statistics_dtype(dtype);
      const auto x = on_gpu(random({0, 40}, dtype, 1)), w = on_gpu(random({40}, dtype, 2)),
                 rstd = on_gpu(random({0}, statistics, 3));
      const auto qkv = on_gpu(random({0, 120}, dtype, 1)), raw = on_gpu(random({0, 80}, dtype, 1)),
                 head_rstd = on_gpu(random({0, 2}, statistics, 3));
      std::vector<at::Tensor> gradients;
      for (int i = 0; i < 6; ++i) gradients.push_back(on_gpu(found({40}, to, adds, 10)));
      bias_backward({gradients[0], adds}, x);
      rms_norm_backward(x, {gradients[1], adds}, x, x, x, w, rstd, {});
      layer_norm_backward(x, {gradients[2], adds}, {gradients[3], adds}, x, x, x, w, w, rstd, rstd, {});
      head_norm_backward(qkv, {gradients[4], adds}, {gradients[5], adds}, raw, head_rstd, w, w, 1, 1);
      const auto want = adds ? random({40}, to, 10) : at::zeros({40}, at::TensorOptions().dtype(to));
      for (const auto& gradient : gradients) EXPECT_TRUE(at::equal(gradient.cpu(), want));
    });
  });
}

struct HeadSize {
  int64_t rows, heads, kv_heads, head_dim;
};
// 8, 16 and 32 lanes to a head, several chunks of a lane, and more than it keeps.
const HeadSize kHeadSizes[] = {{1, 1, 1, 8},      {5, 4, 2, 7},   {70, 2, 1, 64},   {1000, 4, 2, 64},
                               {1000, 8, 2, 128}, {9, 2, 1, 256}, {300, 3, 1, 300}, {40, 2, 1, 1100}};

void for_each_head_size(const std::function<void(at::ScalarType, HeadSize)>& check) {
  for_each_dtype([&](at::ScalarType dtype) {
    for (const HeadSize& s : kHeadSizes) {
      SCOPED_TRACE(testing::Message() << s.rows << " rows of " << s.heads << " and " << s.kv_heads << " heads of "
                                      << s.head_dim);
      check(dtype, s);
    }
  });
}

TEST_F(Cuda, HeadNormForward) {
  for_each_head_size([](at::ScalarType dtype, HeadSize s) {
    const Tensors inputs{random({s.rows, (s.heads + 2 * s.kv_heads) * s.head_dim}, dtype, 1),
                         random({s.head_dim}, dtype, 2), random({s.head_dim}, dtype, 3)};
    for (const bool keeps : {false, true})
      expect_same_as_on_the_cpu(
          [&](const Tensors& in) {
            const auto rstd = poisoned({s.rows, s.heads + s.kv_heads}, statistics_dtype(dtype), in[0]);
            const auto raw =
                keeps ? poisoned({s.rows, (s.heads + s.kv_heads) * s.head_dim}, dtype, in[0]) : at::Tensor();
            head_norm_forward(in[0], raw, rstd, in[1], in[2], s.heads, s.kv_heads, 1e-6, 1);
            std::vector<Result> results{{in[0]}, {rstd, kStatistics}};
            if (keeps) results.push_back({raw});
            return results;
          },
          inputs, keeps ? "raw is kept" : "raw is not kept");
  });
}

TEST_F(Cuda, HeadNormBackward) {
  for_each_head_size([](at::ScalarType dtype, HeadSize s) {
    for_each_gradient(dtype, [&](at::ScalarType to, bool adds) {
      const int64_t heads = s.heads + s.kv_heads;
      const auto raw = random({s.rows, heads * s.head_dim}, dtype, 4);
      const auto squares = raw.to(at::kDouble).view({s.rows, heads, s.head_dim}).square().mean(2);
      const Tensors inputs{random({s.rows, (heads + s.kv_heads) * s.head_dim}, dtype, 1),
                           random({s.head_dim}, dtype, 2),
                           random({s.head_dim}, dtype, 3),
                           raw,
                           (squares + 1e-6).rsqrt().to(statistics_dtype(dtype)),
                           found({s.head_dim}, to, adds, 5),
                           found({s.head_dim}, to, adds, 6)};
      expect_same_as_on_the_cpu(
          [&](const Tensors& in) {
            head_norm_backward(in[0], {in[5], adds}, {in[6], adds}, in[3], in[4], in[1], in[2], s.heads, s.kv_heads, 1);
            // Sums over heads as well as rows.
            return std::vector<Result>{{in[0]}, {in[5], 2 * kSummed}, {in[6], 2 * kSummed}};
          },
          inputs, "head norm backward");
    });
  });
}

TEST_F(Cuda, Rotary) {
  for_each_dtype([](at::ScalarType dtype) {
    for (const int64_t head_dim : {2, 14, 64, 80, 128})
      for (const bool with_ids : {false, true}) {
        constexpr int64_t kBatch = 3, kSequence = 50, kHeads = 4, kKvHeads = 2;
        const auto angles = random({kSequence, head_dim / 2}, at::kDouble, 2) * 3;
        const auto wide = statistics_dtype(dtype);
        const Tensors inputs{random({kBatch * kSequence, (kHeads + 2 * kKvHeads) * head_dim}, dtype, 1),
                             angles.cos().to(wide), angles.sin().to(wide),
                             at::arange(kBatch * kSequence, at::kLong).square().remainder(kSequence)};
        for (const bool backward : {false, true})
          expect_same_as_on_the_cpu(
              [&](const Tensors& in) {
                (backward ? rotary_backward : rotary_forward)(in[0], in[1], in[2], kHeads, kKvHeads,
                                                              with_ids ? in[3] : at::Tensor());
                return std::vector<Result>{{in[0]}};
              },
              inputs, "head_dim " + std::to_string(head_dim) + (with_ids ? ", ids" : "") + (backward ? ", back" : ""));
      }
  });
}

}  // namespace
}  // namespace trireme::ops
