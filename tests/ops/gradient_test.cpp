// Gradients of weights, written and added, into tensors of the compute dtype and of the wider one.
#include <gtest/gtest.h>

#include <functional>

#include "tests/ops/support.h"
#include "trireme/base/error.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/products/products.h"

namespace trireme::ops::test {
namespace {

struct GradientCase {
  std::string name;
  std::vector<std::vector<int64_t>> shapes;                      ///< of the gradients
  std::function<void(const std::vector<Gradient>& gradients)> run;  ///< with inputs of its own
  bool product = false;                                          ///< matrices: not added to bfloat16
};

std::vector<GradientCase> gradient_cases(at::ScalarType dtype) {
  constexpr int64_t kTokens = 64, kIn = 48, kOut = 34;
  const auto x = random({kTokens, kIn}, dtype, 1), dy = random({kTokens, kOut}, dtype, 2);
  std::vector<GradientCase> all;
  all.push_back(
      {"linear_backward_weight", {{kOut, kIn}}, [=](const auto& g) { linear_backward_weight(g[0], dy, x); }, true});
  all.push_back({"linear_in_out_backward_weight",
                 {{kIn, kOut}},
                 [=](const auto& g) { linear_in_out_backward_weight(g[0], dy, x); },
                 true});
  all.push_back({"bias_backward", {{kOut}}, [=](const auto& g) { bias_backward(g[0], dy); }});

  const auto w = random({kIn}, dtype, 3), b = random({kIn}, dtype, 4), d_normed = random({kTokens, kIn}, dtype, 5);
  const auto statistics = wide(dtype);
  const auto rstd = random({kTokens}, statistics, 6).abs(), mean = random({kTokens}, statistics, 7);
  all.push_back({"rms_norm_backward", {{kIn}}, [=](const auto& g) {
                   const auto dx = at::empty_like(x), y = at::empty_like(x);
                   rms_norm_backward(dx, g[0], y, d_normed, x, w, rstd, {});
                 }});
  all.push_back({"layer_norm_backward", {{kIn}, {kIn}}, [=](const auto& g) {
                   const auto dx = at::empty_like(x), y = at::empty_like(x);
                   layer_norm_backward(dx, g[0], g[1], y, d_normed, x, w, b, mean, rstd, {});
                 }});
  constexpr int64_t kHeads = 3, kKvHeads = 1, kDim = 8;
  const auto qkv = random({kTokens, (kHeads + 2 * kKvHeads) * kDim}, dtype, 8),
             raw = random({kTokens, (kHeads + kKvHeads) * kDim}, dtype, 9),
             head_rstd = random({kTokens, kHeads + kKvHeads}, statistics, 10).abs(), w_q = random({kDim}, dtype, 11),
             w_k = random({kDim}, dtype, 12);
  all.push_back({"head_norm_backward", {{kDim}, {kDim}}, [=](const auto& g) {
                   head_norm_backward(qkv.clone(), g[0], g[1], raw, head_rstd, w_q, w_k, kHeads, kKvHeads);
                 }});
  // Rows of whole vectors, with some left over; some ids twice, most of the table without one.
  for (const int64_t width : {5, 300}) {
    const auto rows = random({kTokens, width}, dtype, 13), ids = at::arange(kTokens, at::kLong).square().remainder(90);
    all.push_back(
        {"embedding_backward of width " + std::to_string(width), {{100, width}, {40, width}}, [=](const auto& g) {
           embedding_backward(g[0], g[1], rows, ids, at::empty_like(ids), 32, {}, 1.5);
         }});
  }
  for (const int64_t chunk : {kTokens, int64_t{24}}) {  // in one and in several
    const auto table = random({kOut, kIn}, dtype, 14), targets = at::arange(kTokens, at::kLong).remainder(kOut);
    all.push_back({"cross_entropy in chunks of " + std::to_string(chunk),
                   {{kOut, kIn}},
                   [=](const auto& g) {
                     const auto loss = at::empty({1}, at::kDouble), dx = at::empty_like(x),
                                logits = at::empty({chunk, kOut}, dtype), sum = at::empty({kOut, kIn}, at::kFloat);
                     cross_entropy_forward_backward(loss, dx, g[0], x, table, targets, 0.1, logits, sum);
                   },
                   true});
  }
  return all;
}

/// Fresh gradients of the dtype, each filled with `found` where it is added to.
std::vector<at::Tensor> gradients(const GradientCase& c, at::ScalarType dtype, bool adds) {
  std::vector<Gradient> to;
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < c.shapes.size(); ++i) {
    out.push_back(adds ? random(c.shapes[i], dtype, 50 + static_cast<int64_t>(i)) : unwritten(c.shapes[i], dtype));
    to.emplace_back(out.back(), adds);
  }
  c.run(to);
  return out;
}

TEST(GradientsOfWeights, AreNotRoundedInATensorOfTheWiderDtype) {
  for_each_case([](at::ScalarType dtype) {
    for (const GradientCase& c : gradient_cases(dtype)) {
      const auto narrow = gradients(c, dtype, false), broad = gradients(c, wide(dtype), false);
      for (size_t i = 0; i < narrow.size(); ++i) {
        expect_same_bits(broad[i].to(dtype), narrow[i], c.name);
        const bool rounds = c.product && std::string(product_kernel_name(dtype)) == "LibTorch";
        if (!is_narrow(dtype) || rounds) continue;
        EXPECT_FALSE(at::equal(broad[i].to(dtype).to(broad[i].dtype()), broad[i])) << c.name;
      }
    }
  });
}

TEST(GradientsOfWeights, AreAddedToWhatIsThere) {
  for_each_case([](at::ScalarType dtype) {
    for (const GradientCase& c : gradient_cases(dtype))
      for (const at::ScalarType to : {dtype, wide(dtype)}) {
        if (is_narrow(to) && c.product) continue;
        const auto alone = gradients(c, wide(dtype), false), added = gradients(c, to, true);
        for (size_t i = 0; i < alone.size(); ++i) {
          const auto found = random(c.shapes[i], to, 50 + static_cast<int64_t>(i));
          const auto expected = found.to(at::kDouble) + alone[i].to(at::kDouble);
          // A float32 sum of float32 parts: nothing of bfloat16's 2e-3 is left.
          EXPECT_LE(relative_error(added[i], expected), tolerance(to)) << c.name << " into " << c10::toString(to);
        }
      }
  });
}

TEST(GradientsOfWeights, ThatAreNotWantedAreLeftOutAndChangeNoOther) {
  for_each_case([](at::ScalarType dtype) {
    for (const GradientCase& c : gradient_cases(dtype)) {
      const auto all = gradients(c, dtype, false);
      c.run(std::vector<Gradient>(c.shapes.size()));
      for (size_t left_out = 0; left_out < c.shapes.size(); ++left_out) {
        std::vector<Gradient> to;
        for (size_t i = 0; i < c.shapes.size(); ++i)
          to.push_back(i == left_out ? Gradient() : Gradient(unwritten(c.shapes[i], dtype)));
        c.run(to);
        for (size_t i = 0; i < c.shapes.size(); ++i)
          if (i != left_out) expect_same_bits(to[i].to, all[i], c.name);
      }
    }
  });
}

TEST(GradientsOfWeights, OfProductsAreNotAddedToBfloat16) {
  for (const GradientCase& c : gradient_cases(at::kBFloat16)) {
    if (!c.product) continue;
    EXPECT_THROW(gradients(c, at::kBFloat16, true), ShapeError) << c.name;
  }
}

TEST(GradientsOfWeights, OfAnotherDtypeAreRefused) {
  for (const GradientCase& c : gradient_cases(at::kFloat))
    EXPECT_THROW(gradients(c, at::kBFloat16, false), ShapeError) << c.name;
}

TEST(GradientsOfWeights, MadeBesideThemAreWrittenOrAdded) {
  const auto x = at::full({3}, 1.0f + 1.0f / 1024), sum = at::full({3}, 2.0f), slot = unwritten({3}, at::kBFloat16);
  write_gradient(slot, x);
  EXPECT_TRUE(at::equal(slot, x.to(at::kBFloat16)));
  write_gradient({sum, true}, x);
  EXPECT_TRUE(at::equal(sum, x + 2));
}

}  // namespace
}  // namespace trireme::ops::test
