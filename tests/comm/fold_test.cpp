// The fold against ATen, rank after rank, in every dtype, at sizes around the block and vector lengths.
#include "trireme/comm/fold.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "trireme/comm/collective.h"
#include "trireme/comm/fold_kernels.h"

namespace trireme::comm {
namespace {

at::Tensor run_fold(const std::vector<at::Tensor>& terms, at::Tensor output, ReduceOptions options) {
  std::vector<const void*> sources;
  for (const auto& t : terms) sources.push_back(t.const_data_ptr());
  fold(output.mutable_data_ptr(), output.scalar_type(), sources, terms[0].scalar_type(), output.numel(), options);
  return output;
}

at::Tensor fold_by_aten(const std::vector<at::Tensor>& terms, const at::Tensor& output, ReduceOptions options) {
  const auto dtype = output.scalar_type();
  at::Tensor acc = options.accumulate ? output.clone() : terms[0].to(dtype);
  for (size_t k = options.accumulate ? 0 : 1; k < terms.size(); ++k)
    acc = options.op == ReduceOp::sum ? (acc + terms[k].to(dtype)).to(dtype) : at::maximum(acc, terms[k].to(dtype));
  return acc;
}

std::vector<at::Tensor> random_terms(int num, int64_t n, at::ScalarType dtype) {
  std::vector<at::Tensor> terms;
  for (int k = 0; k < num; ++k) terms.push_back((at::randn({n}, at::kFloat) * 100).to(at::kDouble).to(dtype));
  return terms;
}

TEST(Fold, EqualsTheLeftFoldInEveryDtype) {
  at::manual_seed(1);
  const std::pair<at::ScalarType, at::ScalarType> kinds[] = {
      {at::kFloat, at::kFloat}, {at::kDouble, at::kDouble},  {at::kBFloat16, at::kBFloat16}, {at::kHalf, at::kHalf},
      {at::kLong, at::kLong},   {at::kInt, at::kInt},        {at::kShort, at::kShort},       {at::kChar, at::kChar},
      {at::kByte, at::kByte},   {at::kBFloat16, at::kFloat}, {at::kHalf, at::kFloat}};
  for (const auto& [in, out] : kinds) {
    ASSERT_TRUE(can_fold(in, out));
    for (const int64_t n : {0, 1, 15, 17, 63, 2047, 2048, 2049, 10'001}) {
      for (const ReduceOptions options : {ReduceOptions{}, {.op = ReduceOp::max}, {.accumulate = true}}) {
        for (const int num : {1, 2, 5}) {
          const auto terms = random_terms(num, n, in);
          const at::Tensor base = random_terms(1, n, out)[0];
          EXPECT_TRUE(at::equal(run_fold(terms, base.clone(), options), fold_by_aten(terms, base, options)))
              << dtype_name(in) << " into " << dtype_name(out) << ", " << num << " terms of " << n;
        }
      }
    }
  }
}

TEST(Fold, OutputMayBeAnyOfTheTerms) {
  at::manual_seed(2);
  for (int place = 0; place < 3; ++place) {
    const auto terms = random_terms(3, 5000, at::kFloat);
    const at::Tensor expected = fold_by_aten(terms, terms[place], {});
    EXPECT_TRUE(at::equal(run_fold(terms, terms[place], {}), expected)) << place;
  }
}

TEST(Fold, AllOutputsGetTheSameBits) {
  const int64_t n = 5003;  // neither whole blocks nor whole cache lines
  for (const Stores stores : {Stores::plain, Stores::streaming}) {
    for (const bool accumulate : {false, true}) {
      const at::Tensor a = at::randn({n}), b = at::randn({n});
      at::Tensor first = at::randn({n + 1}).narrow(0, 1, n), second = b.clone(), expected = first.clone();
      const void* sources[] = {a.const_data_ptr(), second.const_data_ptr()};
      void* outputs[] = {first.mutable_data_ptr(), second.mutable_data_ptr()};
      const ReduceOptions options{.accumulate = accumulate};
      const void* plain[] = {a.const_data_ptr(), b.const_data_ptr()};
      fold(expected.mutable_data_ptr(), at::kFloat, plain, at::kFloat, n, options);
      fold_to_all(outputs, at::kFloat, sources, at::kFloat, n, options, stores);
      EXPECT_TRUE(at::equal(first, expected));
      EXPECT_TRUE(at::equal(second, expected)) << "the output that is also a source";
    }
  }
}

TEST(Fold, StreamCopyCopiesJustWhatItShould) {
  const at::Tensor from = at::randint(0, 256, {700}, at::kByte);
  for (const int64_t begin : {0, 1, 63, 64}) {
    for (const int64_t bytes : {0, 1, 63, 64, 65, 128, 500}) {
      at::Tensor to = at::full({700}, 7, at::kByte), expected = to.clone();
      expected.narrow(0, begin, bytes).copy_(from.narrow(0, 5, bytes));
      stream_copy(to.mutable_data_ptr<uint8_t>() + begin, from.data_ptr<uint8_t>() + 5, bytes);
      EXPECT_TRUE(at::equal(to, expected)) << begin << ", " << bytes;
    }
  }
}

TEST(Fold, SpecialValuesOfHalfPrecisionSurvive) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    // Every bit pattern that is a number, plus itself and alone.
    const at::Tensor bits = at::arange(-32768, 32768, at::kShort);
    at::Tensor all = bits.view(dtype);
    all = all.masked_select(all.isnan().logical_not()).contiguous();
    EXPECT_TRUE(at::equal(run_fold({all, all}, at::zeros_like(all), {}),
                          (all + all).masked_fill_(all.isinf(), 0) + all.masked_fill(all.isinf().logical_not(), 0)));
    EXPECT_TRUE(at::equal(run_fold({all}, at::zeros({all.numel()}, at::kFloat), {}), all.to(at::kFloat)));
    const at::Tensor a = at::tensor({inf, -inf, 1.0f, 65504.0f}).to(dtype),
                     b = at::tensor({1.0f, inf, -0.0f, 65504.0f}).to(dtype);
    const at::Tensor sum = run_fold({a, b}, at::zeros_like(a), {}), expected = a + b;
    EXPECT_TRUE(at::equal(sum.isnan(), expected.isnan()));
    EXPECT_TRUE(at::equal(sum.nan_to_num(7), expected.nan_to_num(7)));
  }
}

TEST(Fold, MaximumPropagatesNotANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const at::Tensor a = at::tensor({nan, 1.0f, nan}).to(dtype), b = at::tensor({1.0f, nan, nan}).to(dtype);
    EXPECT_TRUE(run_fold({a, b}, at::zeros_like(a), {.op = ReduceOp::max}).isnan().all().item<bool>());
  }
}

#ifdef TRIREME_FOLD_X86
TEST(Fold, EveryInstructionSetGivesTheSameBits) {
  at::manual_seed(3);
  struct Isa {
    const FoldTable& table;
    bool here;
  };
  const Isa isas[] = {{fold_avx2::table(), static_cast<bool>(__builtin_cpu_supports("avx2"))},
                      {fold_avx512::table(), __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                                                 __builtin_cpu_supports("avx512vl")}};
  const std::pair<at::ScalarType, at::ScalarType> pairs[kNumFoldPairs] = {
      {at::kFloat, at::kFloat}, {at::kDouble, at::kDouble},  {at::kBFloat16, at::kBFloat16}, {at::kHalf, at::kHalf},
      {at::kLong, at::kLong},   {at::kInt, at::kInt},        {at::kShort, at::kShort},       {at::kChar, at::kChar},
      {at::kByte, at::kByte},   {at::kFloat, at::kBFloat16}, {at::kFloat, at::kHalf}};
  for (const Isa& isa : isas) {
    if (!isa.here) continue;
    for (int p = 0; p < kNumFoldPairs; ++p) {
      const at::Tensor acc = random_terms(1, 1037, pairs[p].first)[0], x = random_terms(1, 1037, pairs[p].second)[0];
      const auto with = [&](FoldKernel kernel) {
        at::Tensor a = acc.clone();
        kernel(a.mutable_data_ptr(), x.const_data_ptr(), a.numel());
        return a;
      };
      const FoldTable& base = fold_baseline::table();
      EXPECT_TRUE(at::equal(with(base.start[p]), with(isa.table.start[p]))) << p;
      EXPECT_TRUE(at::equal(with(base.sum[p]), with(isa.table.sum[p]))) << p;
      EXPECT_TRUE(at::equal(with(base.max[p]), with(isa.table.max[p]))) << p;
    }
  }
}
#endif

}  // namespace
}  // namespace trireme::comm
