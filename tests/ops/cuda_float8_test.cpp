// Products of numbers of 8 bits on a GPU: operands are rounded as on the CPU, and sums differ in their last bits.
#include <cmath>

#include "tests/ops/cuda_support.h"
#include "trireme/ops/products/float8.h"

namespace trireme::ops {
namespace {

at::Tensor product8(at::Device device, const at::Tensor& a, Float8 of_a, const at::Tensor& b, at::ScalarType dtype,
                    const at::Tensor& addend = {}) {
  const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
  const auto there = [&](const at::Tensor& x) {
    return x.stride(1) == 1 ? x.to(device) : x.t().contiguous().to(device).t();
  };
  const at::Tensor left = there(a), right = there(b),
                   room = at::empty({float8_scratch_bytes(m, n, k, device.is_cuda())},
                                    at::TensorOptions().dtype(at::kByte).device(device));
  at::Tensor c = at::full({m, n}, NAN, at::TensorOptions().dtype(dtype).device(device));
  at::Tensor added = addend.defined() ? addend.to(device) : addend;
  if (addend.defined() && dtype == at::kFloat) c.copy_(added), added = c;
  multiply_float8(c, {left, of_a}, {right, Float8::e4m3}, room, added);
  return c;
}

TEST_F(Cuda, ProductsOfEightBitsAreTheCpus) {
  struct Size {
    int64_t m, n, k;
  };
  for (const Size& s : {Size{16, 16, 16}, {48, 144, 80}, {1024, 512, 256}, {272, 1040, 2064}, {4096, 2048, 1536}})
    for (const Float8 of_a : {Float8::e4m3, Float8::e5m2})
      for (const int layout : {0, 1, 2, 3}) {
        SCOPED_TRACE(testing::Message() << s.m << " x " << s.n << " x " << s.k << ", layout " << layout);
        at::Tensor a = random({s.m, s.k}, at::kBFloat16, 1).pow(3), b = random({s.k, s.n}, at::kBFloat16, 2);
        if (layout & 1) a = a.t().contiguous().t();
        if (layout & 2) b = b.t().contiguous().t();
        for (const auto dtype : {at::kBFloat16, at::kFloat}) {
          const at::Tensor before = random({s.m, s.n}, dtype, 3).mul(30);
          for (const at::Tensor& addend : {at::Tensor(), before}) {
            const at::Tensor want = product8(at::kCPU, a, of_a, b, dtype, addend),
                             got = product8(at::kCUDA, a, of_a, b, dtype, addend);
            EXPECT_LE(relative_error(got, want), dtype == at::kFloat ? 2e-3 : 6e-3);
            EXPECT_TRUE(at::equal(got, product8(at::kCUDA, a, of_a, b, dtype, addend))) << "other bits the second time";
          }
        }
      }
}

// Products with the identity show every rounded number.
TEST_F(Cuda, NumbersAreRoundedAsOnTheCpu) {
  const at::Tensor identity = at::eye(256, at::kBFloat16);
  for (const Float8 format : {Float8::e4m3, Float8::e5m2})
    for (const double size : {1.0, 3e-12, 7e20})
      for (const bool transposed : {false, true}) {
        at::Tensor a = random({1024, 256}, at::kDouble, 5).pow(5).mul(size).to(at::kBFloat16);
        if (transposed) a = a.t().contiguous().t();
        const at::Tensor got = product8(at::kCUDA, a, format, identity, at::kFloat).to(at::kCPU);
        EXPECT_TRUE(at::equal(got, product8(at::kCPU, a, format, identity, at::kFloat)));
      }
  at::Tensor bad = random({64, 256}, at::kBFloat16, 5);
  bad[3][5].fill_(INFINITY);
  bad[9][7].fill_(NAN);
  const at::Tensor got = product8(at::kCUDA, bad, Float8::e4m3, identity, at::kFloat).to(at::kCPU);
  EXPECT_TRUE(got[3].isnan().all().item<bool>() && got[9].isnan().all().item<bool>());
}

}  // namespace
}  // namespace trireme::ops
