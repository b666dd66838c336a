#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ops/reference.h"
#include "tests/ops/support.h"
#include "trireme/base/error.h"
#include "trireme/ops/ops.h"

namespace trireme::ops::test {
namespace {

constexpr double kHeadNormEps = 1e-6;
struct HeadNormSize {
  int64_t rows, heads, kv_heads, head_dim;
};
const HeadNormSize kHeadNormSizes[] = {{1, 1, 1, 1}, {5, 4, 2, 7}, {70, 2, 1, 64}, {3, 2, 1, 300}, {5, 2, 1, 256}};

struct Inputs {
  at::Tensor qkv, w_q, w_k, d_qkv;
  Inputs(const HeadNormSize& s, at::ScalarType dtype)
      : qkv(random({s.rows, (s.heads + 2 * s.kv_heads) * s.head_dim}, dtype, 1)),
        w_q(random({s.head_dim}, dtype, 2)),
        w_k(random({s.head_dim}, dtype, 3)),
        d_qkv(random(qkv.sizes(), dtype, 4)) {}
};

struct Kept {
  at::Tensor raw, rstd;
  Kept(const HeadNormSize& s, at::ScalarType dtype)
      : raw(unwritten({s.rows, (s.heads + s.kv_heads) * s.head_dim}, dtype)),
        rstd(unwritten({s.rows, s.heads + s.kv_heads}, wide(dtype))) {}
};

/// qkv, w_q, w_k -> qkv with its q and k parts normalised.
auto reference_of(const HeadNormSize& s, double offset) {
  return [=](const std::vector<at::Tensor>& in) {
    return reference::head_norm(in[0], in[1], in[2], s.heads, s.kv_heads, kHeadNormEps, offset);
  };
}

TEST(HeadNorm, ForwardAgreesWithTheReferenceAndKeepsWhatWasThere) {
  for_each_case([](at::ScalarType dtype) {
    for (const HeadNormSize& s : kHeadNormSizes)
      for (const double offset : {0.0, 1.0}) {
        const Inputs in(s, dtype);
        const Kept kept(s, dtype), none(s, dtype);
        const at::Tensor qkv = in.qkv.clone(), again = in.qkv.clone();
        head_norm_forward(qkv, kept.raw, kept.rstd, in.w_q, in.w_k, s.heads, s.kv_heads, kHeadNormEps, offset);
        const auto wanted =
            reference_of(s, offset)({in.qkv.to(at::kDouble), in.w_q.to(at::kDouble), in.w_k.to(at::kDouble)});
        expect_close(qkv, wanted, "qkv");
        const int64_t width = (s.heads + s.kv_heads) * s.head_dim, rest = s.kv_heads * s.head_dim;
        expect_same_bits(kept.raw, in.qkv.narrow(1, 0, width).contiguous(), "raw");
        expect_same_bits(qkv.narrow(1, width, rest).contiguous(), in.qkv.narrow(1, width, rest).contiguous(), "v");
        head_norm_forward(again, {}, none.rstd, in.w_q, in.w_k, s.heads, s.kv_heads, kHeadNormEps, offset);
        expect_same_bits(again, qkv, "qkv without raw");
        expect_same_bits(none.rstd, kept.rstd, "rstd without raw");
      }
  });
}

TEST(HeadNorm, BackwardAgreesWithAutograd) {
  for_each_case([](at::ScalarType dtype) {
    for (const HeadNormSize& s : kHeadNormSizes)
      for (const double offset : {0.0, 1.0}) {
        const Inputs in(s, dtype);
        const Kept kept(s, dtype);
        head_norm_forward(in.qkv.clone(), kept.raw, kept.rstd, in.w_q, in.w_k, s.heads, s.kv_heads, kHeadNormEps,
                          offset);
        const at::Tensor dqkv = in.d_qkv.clone(), dw_q = unwritten({s.head_dim}, dtype),
                         dw_k = unwritten({s.head_dim}, dtype);
        head_norm_backward(dqkv, dw_q, dw_k, kept.raw, kept.rstd, in.w_q, in.w_k, s.heads, s.kv_heads, offset);
        const auto wanted = autograd(reference_of(s, offset), {in.qkv, in.w_q, in.w_k}, in.d_qkv);
        expect_close(dqkv, wanted[0], "dqkv");
        expect_close(dw_q, wanted[1], "dw_q");
        expect_close(dw_k, wanted[2], "dw_k");
      }
  });
}

TEST(HeadNorm, BackwardAgreesWithFiniteDifferences) {
  const HeadNormSize s{4, 2, 1, 5};
  const Inputs in(s, at::kDouble);
  const auto ours = [&](const std::vector<at::Tensor>& x) {
    const at::Tensor qkv = x[0].clone();
    head_norm_forward(qkv, {}, Kept(s, at::kDouble).rstd, x[1], x[2], s.heads, s.kv_heads, kHeadNormEps, 1);
    return qkv;
  };
  const Kept kept(s, at::kDouble);
  head_norm_forward(in.qkv.clone(), kept.raw, kept.rstd, in.w_q, in.w_k, s.heads, s.kv_heads, kHeadNormEps, 1);
  const at::Tensor dqkv = in.d_qkv.clone(), dw_q = at::empty_like(in.w_q), dw_k = at::empty_like(in.w_k);
  head_norm_backward(dqkv, dw_q, dw_k, kept.raw, kept.rstd, in.w_q, in.w_k, s.heads, s.kv_heads, 1);
  const auto wanted = finite_differences(ours, {in.qkv, in.w_q, in.w_k}, in.d_qkv);
  EXPECT_LE(relative_error(dqkv, wanted[0]), 1e-7);
  EXPECT_LE(relative_error(dw_q, wanted[1]), 1e-7);
  EXPECT_LE(relative_error(dw_k, wanted[2]), 1e-7);
}

TEST(HeadNorm, HasTheSameBitsOnAnyNumberOfThreads) {
  const HeadNormSize s{200, 4, 2, 20};
  const Inputs in(s, at::kBFloat16);
  expect_same_on_all_threads([&] {
    const Kept kept(s, at::kBFloat16);
    const at::Tensor qkv = in.qkv.clone(), dqkv = in.d_qkv.clone(), dw_q = at::empty_like(in.w_q),
                     dw_k = at::empty_like(in.w_k);
    head_norm_forward(qkv, kept.raw, kept.rstd, in.w_q, in.w_k, s.heads, s.kv_heads, kHeadNormEps, 0);
    head_norm_backward(dqkv, dw_q, dw_k, kept.raw, kept.rstd, in.w_q, in.w_k, s.heads, s.kv_heads, 0);
    return std::vector{qkv, dqkv, dw_q, dw_k};
  });
}

TEST(HeadNorm, RefusesAWeightOfAnotherWidthThanAHead) {
  const HeadNormSize s{3, 2, 1, 8};
  const Inputs in(s, at::kFloat);
  const Kept kept(s, at::kFloat);
  try {
    head_norm_forward(in.qkv, kept.raw, kept.rstd, in.w_q, at::zeros({7}), s.heads, s.kv_heads, kHeadNormEps, 0);
    FAIL() << "no error";
  } catch (const ShapeError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("head_norm_forward: w_k is CPU float32 [7]; it must be"));
  }
}

}  // namespace
}  // namespace trireme::ops::test
