// Products with a packed matrix: the bits of multiply(), whatever the shape, the kernel and the number of threads.
#include "trireme/ops/products/packed.h"

#include <cstdlib>
#include <random>

#include "support.h"
#include "trireme/base/error.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/products/products.h"

namespace trireme::ops::test {
namespace {

/// A packed matrix without values.
PackedMatrix unpacked(int64_t n, int64_t k, at::ScalarType dtype) {
  const at::Tensor memory = at::full({packed_bytes(n, k, dtype) + 64}, 0xff, at::kByte);  // NaN in every dtype
  const auto before = reinterpret_cast<uintptr_t>(memory.const_data_ptr()) % 64;
  return {memory.narrow(0, before == 0 ? 0 : 64 - static_cast<int64_t>(before), memory.numel() - 64), n, k, dtype};
}

struct Case {
  int64_t m, n, k;
  int64_t cut;  // the columns before it are packed by the first call, and the others by the second
  bool transposed;
  at::ScalarType dtype, out;
};

std::string text(const Case& c) {
  return std::string(c10::toString(c.dtype)) + " -> " + c10::toString(c.out) + " [" + std::to_string(c.m) + ", " +
         std::to_string(c.k) + "] x [" + std::to_string(c.k) + ", " + std::to_string(c.n) + "], cut at " +
         std::to_string(c.cut) + (c.transposed ? ", b transposed" : "");
}

void check(const Case& c) {
  const at::Tensor a = random({c.m, c.k + 3}, c.dtype, 1).narrow(1, 2, c.k), values = random({c.k, c.n}, c.dtype, 2),
                   b = c.transposed ? values.t().contiguous().t() : values;
  for (const GemmKernel* kernel : gemm_kernels(c.dtype)) {
    if (c.k % kernel->k_multiple != 0) continue;
    const at::Tensor expected = unwritten({c.m, c.n}, c.out);
    ASSERT_TRUE(multiply_by(*kernel, expected, a, b));
    expect_same_on_all_threads([&] {
      const PackedMatrix packed = unpacked(c.n, c.k, c.dtype);
      pack_by(*kernel, packed, b.narrow(1, 0, c.cut));
      pack_by(*kernel, packed, b.narrow(1, c.cut, c.n - c.cut), c.cut);
      const at::Tensor wide = random({c.m, c.n + 3}, c.out, 3), before = wide.clone(), found = wide.narrow(1, 1, c.n);
      multiply_packed_by(*kernel, found, a, packed);
      expect_same_bits(found.contiguous(), expected, std::string(kernel->name) + ": " + text(c));
      expect_same_bits(wide.narrow(1, 0, 1).contiguous(), before.narrow(1, 0, 1).contiguous(), "left of c");
      expect_same_bits(wide.narrow(1, c.n + 1, 2).contiguous(), before.narrow(1, c.n + 1, 2).contiguous(),
                       "right of c");
      return std::vector{found.contiguous()};
    });
  }
}

TEST(Packed, ProductsHaveTheBitsOfMultiply) {
  std::mt19937 any(7);
  const auto below = [&](int64_t end) { return std::uniform_int_distribution<int64_t>(0, end - 1)(any); };
  const bool slow = std::getenv("TRIREME_SLOW") != nullptr;
  for (int i = 0; i < (slow ? 400 : 20); ++i)
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const int64_t rows[] = {1, 1 + below(12), 1 + below(64), 1 + below(slow ? 900 : 200)};
      const int64_t n = 1 + below(i % 2 == 0 ? 130 : 700), k = i % 3 == 0 ? 1 + below(4500) : 1 + below(300);
      const at::ScalarType out = is_narrow(dtype) && below(2) == 0 ? at::kFloat : dtype;
      check({.m = rows[below(4)],
             .n = n,
             .k = below(4) == 0 ? k : (k + 1) / 2 * 2,
             .cut = below(2) == 0 ? 0 : below(n),
             .transposed = below(2) == 0,
             .dtype = dtype,
             .out = out});
    }
}

// With AVX2 one row meets four panels at once, of which the last may be missing; more than 96 rows are taken in parts.
TEST(Packed, OneRowAndManyHaveTheBitsOfMultiply) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const int64_t k : {30, 242, 600})
      for (const int64_t n : {15, 16, 40, 64, 65, 113, 190})
        for (const int64_t m : {1, 95, 97, 200})
          if (m == 1 || n == 190)
            check({.m = m, .n = n, .k = k, .cut = n / 2, .transposed = true, .dtype = dtype, .out = dtype});
}

// Up to 48 rows of a long k are prepared once, in all of the scratch; beyond that for each block of panels.
TEST(Packed, ALongSumHasTheBitsOfMultiply) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const int64_t k : {8192, 9472, 9800})
      for (const int64_t m : {7, 32, 48})
        check({.m = m, .n = 170, .k = k, .cut = 64, .transposed = true, .dtype = dtype, .out = dtype});
}

TEST(Packed, WhatMultiplyDoesTheyDo) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf})
    for (const int64_t k : {0, 1, 7, 64}) {
      const at::Tensor a = random({5, k}, dtype, 1), w = random({70, k}, dtype, 2);
      const PackedMatrix packed = unpacked(70, k, dtype);
      pack(packed, w.narrow(0, 0, 30).t());
      pack(packed, w.narrow(0, 30, 40).t(), 30);
      const at::Tensor c = unwritten({5, 70}, dtype), expected = unwritten({5, 70}, dtype);
      multiply_packed(c, a, packed);
      multiply(expected, a, w.t());
      expect_same_bits(c, expected, c10::toString(dtype));
      multiply_packed(at::empty({0, 70}, dtype), at::empty({0, k}, dtype), packed);
    }
}

TEST(Packed, ColumnsAreUnpackedAsTheyWere) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf})
    for (const int64_t first : {0, 5, 30}) {
      const at::Tensor w = random({70, 12}, dtype, 1), found = unwritten({71, 12}, dtype);
      const PackedMatrix packed = unpacked(70, 12, dtype);
      pack(packed, w.narrow(0, 0, first).t());
      pack(packed, w.narrow(0, first, 70 - first).t(), first);
      unpack_columns(found, packed, at::arange(-1, 70));
      expect_same_bits(found.narrow(0, 1, 70).contiguous(), w, c10::toString(dtype));
      EXPECT_TRUE(found[0].eq(0).all().item<bool>());
    }
}

// A plan that is made on one machine holds on another.
TEST(Packed, NeedTheSameBytesEverywhere) {
  EXPECT_EQ(packed_bytes(64, 10, at::kBFloat16), 64 * 10 * 2 + 256);
  EXPECT_EQ(packed_bytes(65, 9, at::kFloat), 128 * 10 * 4 + 256);
}

void expect_refused(const std::function<void()>& call, const char* message) {
  try {
    call();
    FAIL() << "expected: " << message;
  } catch (const ShapeError& error) {
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
}

TEST(Packed, RefuseWhatDoesNotFit) {
  const auto tensor = [](at::IntArrayRef sizes, at::ScalarType dtype) { return at::zeros(sizes, dtype); };
  const PackedMatrix packed = unpacked(70, 8, at::kFloat);
  PackedMatrix shorter = packed;
  shorter.n = 200;
  expect_refused([&] { pack(shorter, tensor({8, 200}, at::kFloat)); }, "a packed Float matrix [8, 200] has 8448");
  expect_refused([&] { pack(packed, tensor({8, 20}, at::kFloat), 60); }, "from column 60 on");
  expect_refused([&] { pack(packed, tensor({8, 20}, at::kHalf)); }, "takes Float columns");
  expect_refused([&] { multiply_packed(tensor({3, 70}, at::kFloat), tensor({3, 9}, at::kFloat), packed); },
                 "b is [8, 70]; they must be [M, 8] and [M, 70]");
  expect_refused([&] { multiply_packed(tensor({3, 70}, at::kHalf), tensor({3, 8}, at::kFloat), packed); },
                 "must be of one dtype");
  expect_refused([&] { multiply_packed(tensor({70, 3}, at::kFloat).t(), tensor({3, 8}, at::kFloat), packed); },
                 "rows of a and c must be contiguous");
}

}  // namespace
}  // namespace trireme::ops::test
