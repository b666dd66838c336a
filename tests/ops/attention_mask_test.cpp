// Sliding windows and documents: what a query must not see, against the float64 reference with an explicit mask.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <ostream>
#include <string>
#include <vector>

#include "tests/ops/attention_support.h"
#include "trireme/base/error.h"

namespace trireme::ops::test {
namespace {

/// Starts of documents of the given lengths, repeated along each row; one list for each batch row.
at::Tensor documents(const AttentionShape& shape, const std::vector<std::vector<int64_t>>& lengths) {
  at::Tensor starts = at::empty({shape.batch, shape.sequence}, at::kLong);
  for (int64_t b = 0; b < shape.batch; ++b) {
    const auto& row = lengths[static_cast<size_t>(b)];
    size_t document = 0;
    for (int64_t start = 0; start < shape.sequence; start += row[document++ % row.size()])
      starts[b].slice(0, start).fill_(start);
  }
  return starts;
}

struct Masked {
  AttentionShape shape;
  std::vector<std::vector<int64_t>> lengths;  ///< of documents, per batch row; empty: none
  at::Tensor starts() const { return lengths.empty() ? at::Tensor() : documents(shape, lengths); }
};
void PrintTo(const Masked& m, std::ostream* os) {
  PrintTo(m.shape, os);
  if (!m.lengths.empty()) *os << "_documents" << m.lengths[0][0];
}

Masked both_ways(Masked m) {
  m.shape.bidirectional = true;
  return m;
}

class AttentionMaskOf : public testing::TestWithParam<Masked> {};

// Windows and documents that begin and end inside tiles (4 rows), pairs, vectors and blocks (64 queries, 128 keys), and
// exactly on their borders; blocks of which some queries see nothing.
INSTANTIATE_TEST_SUITE_P(
    Masks, AttentionMaskOf,
    testing::Values(
        Masked{{1, 7, 2, 1, 16, 0, 1}, {}}, Masked{{2, 130, 4, 2, 16, 0, 3}, {}}, Masked{{1, 257, 4, 1, 80, 0, 64}, {}},
        Masked{{1, 400, 2, 2, 96, 0, 100}, {}}, Masked{{2, 321, 2, 1, 64, 0, 129}, {}},
        Masked{{1, 520, 8, 4, 64, 0, 200}, {}}, Masked{{1, 300, 2, 1, 128, 0.5, 128}, {}},
        Masked{{1, 200, 2, 2, 13, 0, 199}, {}}, Masked{{2, 300, 4, 2, 64}, {{1, 5, 70}, {300}}},
        Masked{{2, 385, 2, 1, 80}, {{128}, {33, 64}}}, Masked{{1, 260, 4, 4, 128}, {{130, 3}}},
        Masked{{3, 150, 3, 1, 96}, {{1}, {2, 149}, {64, 63}}}, Masked{{2, 400, 4, 2, 64, 0, 90}, {{250, 7}, {40, 300}}},
        Masked{{2, 270, 2, 2, 16, 0, 5}, {{4, 100}, {129}}}, Masked{{2, 7, 4, 2, 16, 0, 0, 1}, {}},
        Masked{{1, 257, 4, 1, 80, 1, 64, 20}, {}}, Masked{{1, 200, 4, 2, 256, 0, 0, 2}, {}},
        Masked{{2, 300, 4, 2, 256, 0.5, 129, 10}, {{1, 5, 70}, {300}}},
        Masked{{1, 260, 4, 4, 64, 0.3, 0, 5}, {{130, 3}}}, Masked{{2, 65, 3, 1, 13, -1, 0, 4}, {}},
        both_ways({{1, 7, 2, 1, 16}, {}}), both_ways({{2, 130, 4, 2, 16}, {}}), both_ways({{1, 257, 4, 1, 80}, {}}),
        both_ways({{2, 300, 4, 2, 64}, {{1, 5, 70}, {300}}}), both_ways({{2, 385, 2, 1, 80}, {{128}, {33, 64}}}),
        both_ways({{1, 260, 4, 4, 128}, {{130, 3}}}), both_ways({{3, 150, 3, 1, 96}, {{1}, {2, 149}, {64, 63}}}),
        both_ways({{2, 400, 4, 2, 13}, {{250, 150}, {390, 10}}}), both_ways({{1, 600, 2, 1, 16}, {{31, 500, 69}}}),
        both_ways({{1, 270, 4, 4, 64, 0.3, 0, 5}, {{190, 3}}})),
    [](const auto& info) { return testing::PrintToString(info.param); });

// Tolerances as in attention_test.cpp, where they are reasoned.
TEST_P(AttentionMaskOf, EqualsTheReferenceInEveryKernelAndDtype) {
  const auto& [shape, lengths] = GetParam();
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const AttentionInputs in(shape, dtype, GetParam().starts());
    const AttentionResults want = attention_reference(shape, in);
    const double largest = std::max(4.0, want.lse.abs().max().item<double>());
    for (const AttentionKernel* kernel : attention_kernels()) {
      SCOPED_TRACE(std::string(kernel->name) + " " + c10::toString(dtype));
      const double tolerance = dtype == at::kDouble     ? 1e-12
                               : dtype == at::kBFloat16 ? 1e-2
                               : dtype == at::kHalf     ? 1.5e-3
                               : shape.softcap != 0     ? 8e-6  // a capped score has the rounding of its cap
                               : shape.scale != 0       ? 4e-6
                                                        : 2e-6;
      expect_close(run_attention_with(*kernel, shape, in), want, tolerance,
                   dtype == at::kDouble ? 1e-12 : 1e-6 * largest);
    }
  }
}

TEST(AttentionMask, ACapFarAboveTheScoresIsNone) {
  AttentionShape capped{1, 200, 2, 1, 64};
  const AttentionInputs in(capped, at::kDouble);
  const AttentionResults want = attention_reference(capped, in);
  capped.softcap = 1e6;  // changes scores by s^3 / 3e12
  for (const AttentionKernel* kernel : attention_kernels())
    expect_close(run_attention_with(*kernel, capped, in), want, 1e-9, 1e-9);
}

TEST(AttentionMask, AWindowOfOneKeyShowsAQueryItself) {
  const AttentionShape shape{1, 70, 2, 2, 16, 0, 1};
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const AttentionInputs in(shape, dtype);
    for (const AttentionKernel* kernel : attention_kernels())
      EXPECT_LT(distance(run_attention_with(*kernel, shape, in).out, in.qkv.slice(1, 64).to(at::kDouble)),
                dtype == at::kBFloat16 ? 4e-3
                : dtype == at::kHalf   ? 5e-4
                                       : 1e-6)
          << kernel->name;
  }
}

TEST(AttentionMask, WhatHidesNothingChangesNoBit) {
  const AttentionShape shape{2, 200, 4, 2, 24};
  AttentionShape wide = shape;
  wide.window = shape.sequence;
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf})
    for (const AttentionKernel* kernel : attention_kernels()) {
      SCOPED_TRACE(kernel->name);
      const AttentionResults want = run_attention_with(*kernel, shape, {shape, dtype});
      expect_same_bits(run_attention_with(*kernel, wide, {wide, dtype}), want);
      const at::Tensor starts = at::zeros({shape.batch * shape.sequence}, at::kLong);
      expect_same_bits(run_attention_with(*kernel, shape, {shape, dtype, starts}), want);
    }
}

// Nothing times NaN is NaN: these keys leave no trace only where their blocks are not read at all.
TEST(AttentionMask, BlocksThatNoQuerySeesAreNotRead) {
  AttentionShape window{1, 512, 2, 1, 16, 0, 100};
  const AttentionShape document{1, 512, 2, 1, 16};
  for (const AttentionKernel* kernel : attention_kernels())
    for (const auto& [shape, starts] :
         {std::pair(window, at::Tensor()), std::pair(document, documents(document, {{256}}))}) {
      SCOPED_TRACE(kernel->name);
      AttentionInputs in(shape, at::kBFloat16, starts);
      in.qkv.slice(0, 0, 128).fill_(NAN);
      const AttentionResults got = run_attention_with(*kernel, shape, in);
      EXPECT_TRUE(at::isfinite(got.out.slice(0, 256)).all().item<bool>());
      EXPECT_TRUE(at::isfinite(got.dqkv.slice(0, 256)).all().item<bool>());
      EXPECT_FALSE(at::isfinite(got.out.slice(0, 0, 128)).all().item<bool>());
    }
}

TEST(AttentionMask, DocumentsEqualTheirOwnCalls) {
  const AttentionShape shape{1, 300, 4, 2, 32}, first{1, 190, 4, 2, 32}, second{1, 110, 4, 2, 32};
  const AttentionInputs in(shape, at::kDouble, documents(shape, {{190}}));
  const AttentionKernel& kernel = *attention_kernels().front();
  const AttentionResults got = run_attention_with(kernel, shape, in);
  for (const auto& [part, from] : {std::pair(first, int64_t{0}), std::pair(second, int64_t{190})}) {
    AttentionInputs own(part, at::kDouble);
    own.qkv = in.qkv.slice(0, from, from + part.sequence), own.d_out = in.d_out.slice(0, from, from + part.sequence);
    const AttentionResults want = run_attention_with(kernel, part, own);
    EXPECT_LT(distance(got.out.slice(0, from, from + part.sequence), want.out), 1e-13);
    EXPECT_LT(distance(got.dqkv.slice(0, from, from + part.sequence), want.dqkv), 1e-13);
  }
}

// A padded row is a document and its padding: what lies there, and how much of it, changes no bit.
TEST(AttentionMask, PaddingChangesNoBitOfABidirectionalDocument) {
  for (const int64_t tokens : {1, 37, 130, 190}) {
    AttentionShape shape{2, 300, 4, 2, 32};
    shape.bidirectional = true;
    AttentionShape alone = shape;
    alone.batch = 1, alone.sequence = tokens;
    for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf})
      for (const AttentionKernel* kernel : attention_kernels()) {
        SCOPED_TRACE(std::string(kernel->name) + " " + c10::toString(dtype) + " " + std::to_string(tokens));
        AttentionInputs in(shape, dtype, documents(shape, {{tokens, 300 - tokens}, {300}}));
        in.qkv.slice(0, tokens, 300).mul_(50);
        const AttentionResults got = run_attention_with(*kernel, shape, in);
        AttentionInputs own(alone, dtype);
        own.qkv = in.qkv.slice(0, 0, tokens), own.d_out = in.d_out.slice(0, 0, tokens);
        const AttentionResults want = run_attention_with(*kernel, alone, own);
        expect_same_bits(
            {got.out.slice(0, 0, tokens), got.lse[0].slice(1, 0, tokens).unsqueeze(0), got.dqkv.slice(0, 0, tokens)},
            want);
      }
  }
}

std::string refusal(const AttentionShape& shape, const at::Tensor& starts) {
  const AttentionInputs in(shape, at::kFloat, starts);
  try {
    run_attention_with(*attention_kernels().front(), shape, in);
  } catch (const ShapeError& error) {
    return error.what();
  }
  return "accepted";
}

at::Tensor starts_of(std::initializer_list<int64_t> values) { return at::tensor(std::vector<int64_t>(values)); }

TEST(AttentionMask, RefusalsNameTheEntryAndTheRule) {
  const AttentionShape shape{2, 3, 2, 1, 16};
  EXPECT_EQ(refusal(shape, starts_of({0, 0, 2, 0, 1, 1})), "accepted");
  EXPECT_EQ(refusal(shape, starts_of({0, 0, 2, 0, 2, 2})),
            "attention: starts[1][1] is 2, it must be 0 to 1: the first position of the row's document, which never "
            "falls from one row to the next");
  EXPECT_THAT(refusal(shape, starts_of({0, 1, 0, 0, 0, 0})),
              testing::HasSubstr("starts[0][2] is 0, it must be 1 to 2"));
  EXPECT_THAT(refusal(shape, starts_of({-1, 0, 0, 0, 0, 0})), testing::HasSubstr("starts[0][0] is -1"));
  EXPECT_THAT(refusal(shape, starts_of({0, 0, 0})), testing::HasSubstr("[6] or [2, 3] on the CPU, it is Long of [3]"));
  EXPECT_THAT(refusal(shape, at::zeros({6}, at::kInt)), testing::HasSubstr("contiguous int64"));
  EXPECT_THAT(refusal({1, 8, 2, 1, 16, 0, -1}, {}), testing::HasSubstr("window is -1"));
  EXPECT_THAT(refusal({1, 8, 2, 1, 16, 0, 0, -2}, {}), testing::HasSubstr("softcap is -2"));
  EXPECT_THAT(refusal({1, 8, 2, 1, 16, 0, 0, NAN}, {}), testing::HasSubstr("softcap is nan"));
  EXPECT_THAT(refusal({1, 8, 2, 1, 16, 0, 3, 0, true}, {}), testing::HasSubstr("a bidirectional call has no window"));
}

}  // namespace
}  // namespace trireme::ops::test
