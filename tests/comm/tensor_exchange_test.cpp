// The fold and the whole collectives by ATen's operations, against the fold of fold.h. On the CPU: the same code is
// issued to streams of a GPU.
#include "trireme/comm/tensor_exchange.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/comm/fold.h"

namespace trireme::comm {
namespace {

std::vector<at::Tensor> noise(int num, int64_t n, at::ScalarType dtype) {
  std::vector<at::Tensor> terms;
  for (int k = 0; k < num; ++k) terms.push_back((at::randn({n}) * 100).to(dtype));
  return terms;
}

at::Tensor folded(const std::vector<at::Tensor>& terms, const at::Tensor& output, ReduceOptions options) {
  at::Tensor sum = output.clone();
  std::vector<const void*> sources;
  for (const at::Tensor& t : terms) sources.push_back(t.const_data_ptr());
  fold(sum.mutable_data_ptr(), sum.scalar_type(), sources, terms[0].scalar_type(), sum.numel(), options);
  return sum;
}

constexpr ReduceOptions kOptions[] = {{}, {.accumulate = true}, {.op = ReduceOp::max}};

TEST(TensorFold, HasTheBitsOfTheFold) {
  at::manual_seed(1);
  const std::pair<at::ScalarType, at::ScalarType> kinds[] = {
      {at::kFloat, at::kFloat}, {at::kDouble, at::kDouble}, {at::kBFloat16, at::kBFloat16}, {at::kBFloat16, at::kFloat},
      {at::kHalf, at::kFloat},  {at::kHalf, at::kHalf},     {at::kInt, at::kInt},           {at::kLong, at::kLong},
      {at::kShort, at::kShort}, {at::kChar, at::kChar},     {at::kByte, at::kByte}};
  for (const auto& [in, out] : kinds)
    for (const ReduceOptions& options : kOptions)
      for (const int num : {1, 2, 3, 5})
        for (const int64_t n : {0, 1, 1000}) {
          const auto terms = noise(num, n, in);
          at::Tensor output = noise(1, n, out)[0];
          const at::Tensor expected = folded(terms, output, options);
          fold_tensors(output, terms, options);
          EXPECT_TRUE(at::equal(output, expected)) << num << " terms, " << in << " into " << out;
        }
}

TEST(TensorFold, OutputMayBeAnyOfTheTerms) {
  at::manual_seed(2);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16})
    for (const ReduceOptions& options : kOptions)
      for (const int num : {1, 2, 3, 5})
        for (int place = 0; place < num; ++place) {
          auto terms = noise(num, 1000, dtype);
          const at::Tensor expected = folded(terms, terms[place], options);
          fold_tensors(terms[place], terms, options);
          EXPECT_TRUE(at::equal(terms[place], expected)) << num << " terms, the output is term " << place;
        }
}

// All ranks' calls at once, in place, where the outputs overwrite what the others still have to read.
TEST(ExchangeAll, SumsInPlace) {
  at::manual_seed(3);
  for (const ReduceOptions& options : kOptions) {
    auto tensors = noise(4, 1000, at::kFloat);
    std::vector<at::Tensor> expected;
    for (const at::Tensor& t : tensors) expected.push_back(folded(tensors, t, options));
    std::vector<Collective> calls;
    for (const at::Tensor& t : tensors)
      calls.push_back({.operation = Operation::all_reduce, .output = t, .input = t, .options = options});
    std::vector<const Collective*> all;
    for (const Collective& call : calls) all.push_back(&call);
    exchange_all(all);
    for (size_t r = 0; r < tensors.size(); ++r) EXPECT_TRUE(at::equal(tensors[r], expected[r])) << "rank " << r;
  }
}

TEST(ExchangeAll, SlicesOfAllToAll) {
  const std::vector<std::vector<int64_t>> counts = {{1, 2, 0}, {3, 0, 4}, {2, 5, 1}};  // [from][to]
  std::vector<Collective> calls(3);
  for (int r = 0; r < 3; ++r) {
    for (int k = 0; k < 3; ++k) calls[r].counts.push_back(counts[k][r]);
    calls[r].operation = Operation::all_to_all;
    calls[r].input_counts = counts[r];
    std::vector<at::Tensor> parts;
    for (int k = 0; k < 3; ++k) parts.push_back(at::full({counts[r][k]}, 10 * r + k));
    calls[r].input = at::cat(parts);
    calls[r].output = at::full({calls[r].counts[0] + calls[r].counts[1] + calls[r].counts[2]}, -1);
  }
  const Collective* all[] = {&calls[0], &calls[1], &calls[2]};
  exchange_all(all);
  for (int r = 0; r < 3; ++r) {
    std::vector<at::Tensor> parts;
    for (int k = 0; k < 3; ++k) parts.push_back(at::full({counts[k][r]}, 10 * k + r));
    EXPECT_TRUE(at::equal(calls[r].output, at::cat(parts))) << "rank " << r;
  }
}

}  // namespace
}  // namespace trireme::comm
