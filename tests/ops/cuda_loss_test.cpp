// Products, cross-entropy, the embedding and the optimizer on a GPU, against the CPU.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "cuda_support.h"
#include "trireme/base/error.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/products/products.h"
#include "trireme/optim/optimizer.h"

namespace trireme::ops {
namespace {

constexpr at::ScalarType kDtypes[] = {at::kDouble, at::kFloat, at::kBFloat16};

at::ScalarType wide_of(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

at::Tensor random_ids(int64_t count, int64_t end, int64_t seed) {
  return at::randint(end, {count}, at::detail::createCPUGenerator(seed), at::TensorOptions().dtype(at::kLong));
}

/// NaN, so that an element that is not written shows.
at::Tensor poisoned(at::IntArrayRef shape, at::ScalarType dtype, at::Device device) {
  return at::full(shape, std::numeric_limits<double>::quiet_NaN(), at::TensorOptions().dtype(dtype).device(device));
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) { return a.to(at::kCPU).equal(b.to(at::kCPU)); }

/// What an operation writes, given the device it shall run on; inputs are made on the CPU and copied there.
using Outputs = std::vector<at::Tensor>;
using Operation = std::function<Outputs(at::Device)>;

/// Results on the GPU, the same bits in two runs, and those on the CPU.
struct Both {
  Outputs gpu, cpu;
};
Both run_on_both(const Operation& operation) {
  const at::Device gpu(at::kCUDA, 0);
  Both both{operation(gpu), operation(at::kCPU)};
  const Outputs again = operation(gpu);
  for (size_t i = 0; i < again.size(); ++i)
    EXPECT_TRUE(same_bits(again[i], both.gpu[i])) << "output " << i << " differs from run to run, or is NaN";
  return both;
}

void expect_same_bits(const Both& both) {
  for (size_t i = 0; i < both.cpu.size(); ++i)
    EXPECT_TRUE(same_bits(both.gpu[i], both.cpu[i]))
        << "output " << i << ", relative error " << relative_error(both.gpu[i], both.cpu[i]);
}

// ---- products ----

/// A [rows, columns] matrix with `skip` elements between its rows, as it is or as the transpose of such.
at::Tensor matrix(int64_t rows, int64_t columns, bool transposed, int64_t skip, at::ScalarType dtype, int64_t seed,
                  at::Device device) {
  const int64_t long_side = transposed ? columns : rows, short_side = transposed ? rows : columns;
  const at::Tensor whole = random({long_side, short_side + skip}, dtype, seed).to(device);
  const at::Tensor part = whole.narrow(1, 0, short_side);
  return transposed ? part.t() : part;
}

struct ProductSizes {
  int64_t m, n, k;
};
constexpr ProductSizes kProductSizes[] = {{1, 1, 1},    {7, 5, 3},    {64, 128, 32}, {129, 65, 257},
                                          {1, 300, 40}, {300, 1, 40}, {33, 17, 1},   {1, 1, 64}};

TEST_F(Cuda, ProductsOfAllLayoutsAgreeWithFloat64) {
  const at::Device gpu(at::kCUDA, 0);
  for (const auto dtype : kDtypes)
    for (const auto& [m, n, k] : kProductSizes)
      for (int layout = 0; layout < 8; ++layout)
        for (const auto c_dtype : {dtype, wide_of(dtype)})
          for (const bool accumulate : {false, true}) {
            if (accumulate && c_dtype == at::kBFloat16) continue;
            SCOPED_TRACE(std::string(c10::toString(dtype)) + " to " + c10::toString(c_dtype) + ", layout " +
                         std::to_string(layout) + ", m=" + std::to_string(m) + " n=" + std::to_string(n) +
                         " k=" + std::to_string(k) + (accumulate ? " accumulate" : ""));
            const int64_t skip = layout & 4 ? 3 : 0;
            const at::Tensor a = matrix(m, k, layout & 1, skip, dtype, 1, gpu);
            const at::Tensor b = matrix(k, n, layout & 2, 2 * skip, dtype, 2, gpu);
            const at::Tensor before =
                accumulate ? random({m, n + skip}, c_dtype, 3).to(gpu) : poisoned({m, n + skip}, c_dtype, gpu);
            const auto product = [&] {
              const at::Tensor whole = before.clone();
              multiply(whole.narrow(1, 0, n), a, b, accumulate);
              return whole;
            };
            const at::Tensor whole = product(), c = whole.narrow(1, 0, n);
            at::Tensor want = at::mm(a.to(at::kCPU).to(at::kDouble), b.to(at::kCPU).to(at::kDouble));
            if (accumulate) want += before.narrow(1, 0, n).to(at::kCPU).to(at::kDouble);
            EXPECT_LE(relative_error(c, want), bound_of(c_dtype));
            EXPECT_TRUE(same_bits(product().narrow(1, 0, n), c));
            if (skip > 0) {
              const at::Tensor rest = whole.narrow(1, n, skip), rest_before = before.narrow(1, n, skip);
              EXPECT_TRUE(accumulate ? same_bits(rest, rest_before) : rest.isnan().all().item<bool>());
            }
          }
}

// Products of training's size, for which the fastest algorithm is looked for. The bits of a call are those of any
// other.
TEST_F(Cuda, LargeProductsAreThoseOfFloat64) {
  const at::Device gpu(at::kCUDA, 0);
  for (const bool transposed : {false, true}) {
    const int64_t m = 4096, n = 1536, k = 1024;
    const at::Tensor a = matrix(m, k, transposed, 0, at::kBFloat16, 1, gpu),
                     b = matrix(k, n, !transposed, 0, at::kBFloat16, 2, gpu);
    const at::Tensor addend = random({m, n}, at::kBFloat16, 3).to(gpu), before = addend.clone();
    const at::Tensor product = at::mm(a.to(at::kDouble), b.to(at::kDouble));
    for (const auto c_dtype : {at::kBFloat16, at::kFloat}) {
      const auto computed = [&](bool accumulate) {
        at::Tensor c = addend.to(c_dtype, /*non_blocking=*/false, /*copy=*/true);
        multiply(c, a, b, accumulate);
        return c;
      };
      const at::Tensor c = computed(false);
      EXPECT_LE(relative_error(c, product), bound_of(c_dtype));
      EXPECT_TRUE(same_bits(computed(false), c));
      if (c_dtype == at::kFloat) {
        EXPECT_LE(relative_error(computed(true), product + before.to(at::kDouble)), bound_of(c_dtype));
      }
    }
    at::Tensor onto = poisoned({m, n}, at::kBFloat16, gpu);
    multiply_onto(onto, a, b, addend);
    EXPECT_LE(relative_error(onto, product + before.to(at::kDouble)), bound_of(at::kBFloat16));
    EXPECT_TRUE(same_bits(addend, before));
  }
}

TEST_F(Cuda, ProductsOfNothingAreZeroOrLeaveWhatIsThere) {
  const at::Device gpu(at::kCUDA, 0);
  const auto options = at::TensorOptions().device(gpu).dtype(at::kFloat);
  const at::Tensor c = poisoned({3, 4}, at::kFloat, gpu), a = at::empty({3, 0}, options),
                   b = at::empty({0, 4}, options);
  multiply(c, a, b);
  EXPECT_TRUE(same_bits(c, at::zeros({3, 4})));
  c.fill_(2);
  multiply(c, a, b, true);
  EXPECT_TRUE(same_bits(c, at::full({3, 4}, 2.0f)));
  multiply(at::empty({0, 4}, options), at::empty({0, 5}, options), at::ones({5, 4}, options));
  multiply(at::empty({3, 0}, options), at::ones({3, 5}, options), at::empty({5, 0}, options));
}

TEST_F(Cuda, ProductsRefuseRowsWithGaps) {
  const auto options = at::TensorOptions().device(at::Device(at::kCUDA, 0)).dtype(at::kFloat);
  const at::Tensor c = at::zeros({4, 4}, options), gaps = at::ones({4, 8}, options).slice(1, 0, 8, 2);
  try {
    multiply(c, gaps, c.clone());
    FAIL() << "no error";
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(),
                 "multiply: a is [4, 4] with strides (8, 2); its rows, or those of its transpose, must be contiguous");
  }
}

// ---- cross-entropy ----

/// Targets of which every fifth is not supervised.
at::Tensor targets_of(int64_t num_tokens, int64_t vocabulary) {
  const at::Tensor ids = random_ids(num_tokens, vocabulary, 5);
  return at::where(at::arange(num_tokens).remainder(5).eq(2), at::full_like(ids, -100), ids);
}

struct LossCase {
  int64_t tokens, width, vocabulary, chunk_rows;
};

/// A logit's last bits, which the two sum in other orders, are those of its exponential, several times over; dx sums
/// over the vocabulary, in two orders (1.3e-5 was seen in float32 with 262144 words on an H100).
double loss_bound(at::ScalarType dtype) { return dtype == at::kBFloat16 ? 1e-2 : 20 * bound_of(dtype); }

void check_loss(const LossCase& size, at::ScalarType dtype, double softcap, bool wide_dw, bool accumulate,
                bool in_place) {
  const auto& [tokens, width, vocabulary, chunk_rows] = size;
  const auto dw_dtype = wide_dw ? wide_of(dtype) : dtype;
  const Both both = run_on_both([&](at::Device device) -> Outputs {
    const at::Tensor x = random({tokens, width}, dtype, 1).to(device),
                     targets = targets_of(tokens, vocabulary).to(device),
                     w = (random({vocabulary, width}, at::kDouble, 2) * 0.5).to(dtype).to(device),
                     chunk = poisoned({chunk_rows, vocabulary}, dtype, device),
                     alone = poisoned({1}, at::kDouble, device), loss = poisoned({1}, at::kDouble, device),
                     dx = in_place ? x : poisoned({tokens, width}, dtype, device),
                     dw = accumulate ? random({vocabulary, width}, dw_dtype, 3).to(device)
                                     : poisoned({vocabulary, width}, dw_dtype, device);
    const at::Tensor dw_sum = dw_dtype == at::kBFloat16 && chunk_rows < tokens
                                  ? poisoned({vocabulary, width}, at::kFloat, device)
                                  : at::Tensor();
    cross_entropy_forward(alone, x, w, targets, chunk, softcap);
    chunk.fill_(std::numeric_limits<double>::quiet_NaN());
    cross_entropy_forward_backward(loss, dx, {dw, accumulate}, x, w, targets, 0.125, chunk, dw_sum, softcap);
    EXPECT_TRUE(same_bits(alone, loss)) << "the loss alone, and with gradients";
    return {loss, dx, dw};
  });
  const char* names[] = {"loss", "dx", "dw"};
  for (int i = 0; i < 3; ++i)
    EXPECT_LE(relative_error(both.gpu[i], both.cpu[i]), i == 0 ? std::min(1e-3, loss_bound(dtype)) : loss_bound(dtype))
        << names[i];
}

TEST_F(Cuda, CrossEntropyAgreesWithTheCpu) {
  // Rows that begin at multiples of 16 bytes and rows that do not; one chunk and several, the last of them shorter.
  constexpr LossCase kCases[] = {{37, 24, 1000, 37}, {37, 24, 1003, 16}, {5, 8, 1, 5},     {9, 16, 7, 4},
                                 {40, 32, 5000, 16}, {6, 16, 50257, 4},  {3, 8, 262144, 2}};
  for (const auto dtype : kDtypes)
    for (const auto& size : kCases) {
      SCOPED_TRACE(std::string(c10::toString(dtype)) + " vocabulary " + std::to_string(size.vocabulary));
      check_loss(size, dtype, 0, false, false, false);
    }
}

TEST_F(Cuda, CrossEntropyCapsLogitsAddsToGradientsAndWorksInPlace) {
  for (const auto dtype : kDtypes)
    for (const double softcap : {0.0, 4.0})
      for (const bool accumulate : {false, true})
        for (const bool in_place : {false, true}) {
          SCOPED_TRACE(std::string(c10::toString(dtype)) + " softcap " + std::to_string(softcap) +
                       (accumulate ? " accumulate" : "") + (in_place ? " in place" : ""));
          check_loss({37, 24, 1003, 16}, dtype, softcap, true, accumulate, in_place);
        }
}

TEST_F(Cuda, CrossEntropyOfNoSupervisedTokenIsZero) {
  const at::Device gpu(at::kCUDA, 0);
  const at::Tensor x = random({8, 16}, at::kBFloat16, 1).to(gpu), w = random({99, 16}, at::kBFloat16, 2).to(gpu),
                   targets = at::full({8}, -100, at::kLong).to(gpu), chunk = poisoned({8, 99}, at::kBFloat16, gpu),
                   loss = poisoned({1}, at::kDouble, gpu), dx = poisoned({8, 16}, at::kBFloat16, gpu),
                   dw = poisoned({99, 16}, at::kBFloat16, gpu);
  cross_entropy_forward_backward(loss, dx, dw, x, w, targets, 1, chunk, {});
  EXPECT_EQ(loss.item<double>(), 0);
  EXPECT_TRUE(dx.eq(0).all().item<bool>());
  EXPECT_TRUE(dw.eq(0).all().item<bool>());
}

TEST_F(Cuda, CrossEntropyOfLogitsThatAreNoNumbersIsNone) {
  const at::Device gpu(at::kCUDA, 0);
  const double inf = std::numeric_limits<double>::infinity();
  const at::Tensor logits = random({3, 1003}, at::kFloat, 1);
  logits[0][700] = std::numeric_limits<double>::quiet_NaN();
  logits[1].narrow(0, 0, 900).fill_(-inf);  // masked: the others share the probability
  logits[2].fill_(-inf);
  const at::Tensor targets = at::tensor({5, 950, 5}, at::kLong).to(gpu);
  for (int row = 0; row < 3; ++row) {
    const at::Tensor x = logits[row].to(gpu).clone(), loss = at::zeros({1}, at::TensorOptions(at::kDouble).device(gpu));
    cuda_kernels().softmax_loss({.dtype = Storage::kFloat32,
                                 .vocabulary = 1003,
                                 .logits = x.mutable_data_ptr(),
                                 .targets = targets.data_ptr<int64_t>() + row,
                                 .losses = nullptr,
                                 .scale = 1,
                                 .softcap = 0,
                                 .gradient = true},
                                1, loss.mutable_data_ptr<double>());
    EXPECT_EQ(std::isnan(loss.item<double>()), row != 1);
    EXPECT_EQ(x.isnan().any().item<bool>(), row != 1);
    if (row != 1) continue;
    const double want = -logits[1].to(at::kDouble).log_softmax(0)[950].item<double>();
    EXPECT_NEAR(loss.item<double>(), want, 1e-5);
    EXPECT_TRUE(x.narrow(0, 0, 900).eq(0).all().item<bool>());
  }
}

/// The phases over `shards` shards of `width` columns, and what they leave.
Outputs shard_phases(const at::Tensor& logits, const at::Tensor& targets, int64_t shards, int64_t width,
                     int64_t vocabulary, double softcap) {
  const at::Device device = logits.device();
  const int64_t rows = logits.size(0);
  const auto wide = wide_of(logits.scalar_type());
  std::vector<at::Tensor> parts, maxima, sums, target_logits;
  for (int64_t s = 0; s < shards; ++s) {
    parts.push_back(poisoned({rows, width}, logits.scalar_type(), device));
    const int64_t valid = std::clamp<int64_t>(vocabulary - s * width, 0, width);
    if (valid > 0) parts[s].narrow(1, 0, valid).copy_(logits.narrow(1, s * width, valid));
    maxima.push_back(poisoned({rows}, wide, device));
    cross_entropy_shard_max(maxima[s], parts[s], s * width, vocabulary);
  }
  const at::Tensor row_max = at::stack(maxima).amax(0);
  for (int64_t s = 0; s < shards; ++s) {
    sums.push_back(poisoned({rows}, wide, device)), target_logits.push_back(poisoned({rows}, wide, device));
    cross_entropy_shard_sum(sums[s], target_logits[s], parts[s], row_max, targets, s * width, vocabulary);
  }
  const at::Tensor sum_exp = at::stack(sums).sum(0), target_logit = at::stack(target_logits).sum(0);
  const at::Tensor loss = at::full({1}, 3.5, at::TensorOptions(at::kDouble).device(device));
  cross_entropy_shard_loss(loss, row_max, sum_exp, target_logit, targets);
  for (int64_t s = 0; s < shards; ++s)
    cross_entropy_shard_backward(parts[s], row_max, sum_exp, targets, 0.125, s * width, vocabulary, softcap);
  return {row_max, target_logit, sum_exp, loss, at::cat(parts, 1)};
}

TEST_F(Cuda, CrossEntropyShardsAgreeWithTheCpu) {
  for (const auto dtype : kDtypes)
    for (const double softcap : {0.0, 8.0})
      for (const auto& [shards, width] : {std::pair<int64_t, int64_t>{1, 1003}, {1, 1024}, {3, 400}, {4, 351}}) {
        SCOPED_TRACE(std::string(c10::toString(dtype)) + ", " + std::to_string(shards) + " shards of " +
                     std::to_string(width) + ", softcap " + std::to_string(softcap));
        const Both both = run_on_both([&, shards = shards, width = width](at::Device device) {
          const at::Tensor logits = random({21, 1003}, dtype, 1).clamp(-4, 4).to(device);
          return shard_phases(logits, targets_of(21, 1003).to(device), shards, width, 1003, softcap);
        });
        EXPECT_TRUE(same_bits(both.gpu[0], both.cpu[0])) << "row_max";
        EXPECT_TRUE(same_bits(both.gpu[1], both.cpu[1])) << "target_logit";
        // The exponentials of bfloat16 logits are within 3.4e-6 on the CPU.
        const double bound = dtype == at::kDouble ? 1e-13 : dtype == at::kFloat ? 2e-6 : 1e-5;
        EXPECT_LE(relative_error(both.gpu[2], both.cpu[2]), bound) << "sum_exp";
        EXPECT_LE(relative_error(both.gpu[3], both.cpu[3]), bound) << "loss";
        EXPECT_LE(relative_error(both.gpu[4], both.cpu[4]), bound_of(dtype)) << "gradient";
      }
}

TEST_F(Cuda, OneShardHasTheBitsOfTheWholeVocabulary) {
  const at::Device gpu(at::kCUDA, 0);
  for (const auto dtype : kDtypes)
    for (const int64_t vocabulary : {8, 1003, 32000}) {
      SCOPED_TRACE(std::string(c10::toString(dtype)) + " vocabulary " + std::to_string(vocabulary));
      const at::Tensor logits = random({19, vocabulary}, dtype, 1).to(gpu),
                       targets = targets_of(19, vocabulary).to(gpu);
      const Outputs shard = shard_phases(logits, targets, 1, vocabulary, vocabulary, 0);
      const at::Tensor loss = at::full({1}, 3.5, at::TensorOptions(at::kDouble).device(gpu));
      cuda_kernels().softmax_loss({.dtype = storage_of(dtype),
                                   .vocabulary = vocabulary,
                                   .logits = logits.mutable_data_ptr(),
                                   .targets = targets.data_ptr<int64_t>(),
                                   .losses = nullptr,
                                   .scale = 0.125,
                                   .softcap = 0,
                                   .gradient = true},
                                  19, loss.mutable_data_ptr<double>());
      EXPECT_TRUE(same_bits(loss, shard[3]));
      EXPECT_TRUE(same_bits(logits, shard[4]));
    }
}

// GPT-2's vocabulary as a GPU holds it (model/embedding.h), against the processor's without padding.
TEST_F(Cuda, ThePaddedLogitsOfAnOddVocabularyGiveItsLoss) {
  constexpr int64_t kTokens = 40, kWidth = 64, kVocabulary = 50257, kPadded = 50264;
  const at::Device gpu(at::kCUDA, 0);
  for (const auto dtype : kDtypes) {
    SCOPED_TRACE(c10::toString(dtype));
    const at::Tensor x = random({kTokens, kWidth}, dtype, 1), targets = targets_of(kTokens, kVocabulary);
    const at::Tensor w = (random({kVocabulary, kWidth}, at::kDouble, 2) * 0.5).to(dtype);
    const at::Tensor loss = at::zeros({1}, at::kDouble), dx = at::empty_like(x), dw = at::empty_like(w);
    cross_entropy_forward_backward(loss, dx, dw, x, w, targets, 0.125,
                                   poisoned({kTokens, kVocabulary}, dtype, at::kCPU), {});
    at::Tensor table = at::zeros({kPadded, kWidth}, at::TensorOptions(dtype).device(gpu));
    table.narrow(0, 0, kVocabulary).copy_(w);
    const at::Tensor x_gpu = x.to(gpu), logits = poisoned({kTokens, kPadded}, dtype, gpu);
    multiply(logits, x_gpu, table.t());
    const Outputs phases =
        shard_phases(logits.narrow(1, 0, kVocabulary), targets.to(gpu), 1, kPadded, kVocabulary, /*softcap=*/0);
    const at::Tensor &d_logits = phases[4], dx_gpu = poisoned(x.sizes(), dtype, gpu),
                     dw_gpu = poisoned(table.sizes(), dtype, gpu);
    multiply(dx_gpu, d_logits, table);
    multiply(dw_gpu, d_logits.t(), x_gpu);
    EXPECT_NEAR((phases[3].item<double>() - 3.5) / loss.item<double>(), 1, std::min(1e-3, loss_bound(dtype)));
    EXPECT_LE(relative_error(dx_gpu, dx), loss_bound(dtype));
    EXPECT_LE(relative_error(dw_gpu.narrow(0, 0, kVocabulary), dw), loss_bound(dtype));
    EXPECT_TRUE(dw_gpu.narrow(0, kVocabulary, kPadded - kVocabulary).eq(0).all().item<bool>());
  }
}

// ---- embedding ----

/// One id hundreds of times, others a few, some on other ranks, many rows of the table without any.
at::Tensor repeated_ids(int64_t num_tokens, int64_t vocabulary) {
  const at::Tensor ids = random_ids(num_tokens, vocabulary - 1, 5), t = at::arange(num_tokens);
  const at::Tensor often = at::where(t.remainder(3).eq(0), at::full_like(ids, vocabulary - 1), ids);
  return at::where(t.remainder(7).eq(1), at::full_like(ids, -1), often);
}

TEST_F(Cuda, EmbeddingHasTheCpusBits) {
  constexpr int64_t kTokens = 700, kVocabulary = 400, kSequence = 60;
  for (const auto dtype : kDtypes)
    for (const int64_t width : {1, 16, 67, 520})
      for (const double scale : {1.0, 50.5})
        for (const int positions : {0, 1, 2}) {  // none, t % sequence, given by index
          SCOPED_TRACE(std::string(c10::toString(dtype)) + " width " + std::to_string(width) + " scale " +
                       std::to_string(scale) + " positions " + std::to_string(positions));
          // The same multiply-adds in the same order.
          expect_same_bits(run_on_both([&](at::Device device) -> Outputs {
            const at::Tensor ids = repeated_ids(kTokens, kVocabulary).to(device),
                             table = random({kVocabulary, width}, dtype, 1).to(device),
                             dy = random({kTokens, width}, dtype, 2).to(device),
                             order = at::full_like(ids, int64_t{1} << 40), y = poisoned(dy.sizes(), dtype, device);
            const at::Tensor rows = positions > 0 ? random({kSequence + 7, width}, dtype, 3).to(device) : at::Tensor();
            const at::Tensor places = positions == 2 ? random_ids(kTokens, kSequence + 7, 6).to(device) : at::Tensor();
            embedding_forward(y, ids, table, rows, kSequence, places, scale);
            Outputs outputs{y};
            for (const auto to : {dtype, wide_of(dtype)})
              for (const bool accumulate : {false, true}) {
                const auto before = [&](int64_t num_rows, int64_t seed) {
                  return accumulate ? random({num_rows, width}, to, seed).to(device)
                                    : poisoned({num_rows, width}, to, device);
                };
                const Gradient d_table(before(kVocabulary, 7), accumulate);
                const Gradient d_rows = positions > 0 ? Gradient(before(kSequence + 7, 8), accumulate) : Gradient();
                embedding_backward(d_table, d_rows, dy, ids, order, kSequence, places, scale);
                outputs.push_back(d_table.to);
                if (positions > 0) outputs.push_back(d_rows.to);
              }
            return outputs;
          }));
        }
}

TEST_F(Cuda, EmbeddingOfFewTokensAndOfNone) {
  for (const int64_t tokens : {0, 1, 5})
    for (const bool elsewhere : {false, true})
      expect_same_bits(run_on_both([&](at::Device device) -> Outputs {
        const at::Tensor ids = (elsewhere ? at::full({tokens}, -1, at::kLong) : random_ids(tokens, 3, 1)).to(device),
                         table = random({3, 8}, at::kFloat, 1).to(device),
                         dy = random({tokens, 8}, at::kFloat, 2).to(device),
                         y = poisoned({tokens, 8}, at::kFloat, device), rows = random({9, 8}, at::kFloat, 3).to(device),
                         d_table = poisoned({3, 8}, at::kFloat, device), d_rows = poisoned({9, 8}, at::kFloat, device);
        embedding_forward(y, ids, table, rows, 8);
        embedding_backward(d_table, d_rows, dy, ids, at::empty_like(ids), 8);
        return {y, d_table, d_rows};
      }));
}

// ---- optimizer ----

/// Ten steps over changing gradients, from zero state; a part of the span does not decay. All arrays begin `skip`
/// elements into theirs, the copy in the compute dtype at the beginning of its own.
Outputs ten_steps(optim::OptimizerOptions options, at::ScalarType dtype, at::ScalarType compute_dtype, int64_t count,
                  int64_t skip, at::Device device) {
  const auto part = [&](const at::Tensor& whole) { return whole.to(device).narrow(0, skip, count); };
  const at::Tensor master = part(random({count + skip}, dtype, 1));
  const at::Tensor compute = compute_dtype == at::kByte ? at::Tensor() : poisoned({count}, compute_dtype, device);
  std::vector<at::Tensor> state;
  for (size_t i = 0; i < optim::state_names(options).size(); ++i)
    state.push_back(part(at::zeros({count + skip}, dtype)));
  const int64_t first = count / 3, second = count / 2;
  const optim::DecaySegment segments[] = {
      {0, first, true}, {first, first, true}, {first, second, false}, {second, count, true}};
  for (options.step = 1; options.step <= 10; ++options.step)
    optim::optimizer_update(master, state, part(random({count + skip}, dtype, 10 + options.step)), compute, segments,
                            options);
  Outputs outputs{master};
  if (compute.defined()) outputs.push_back(compute);
  outputs.insert(outputs.end(), state.begin(), state.end());
  return outputs;
}

TEST_F(Cuda, TenStepsOfEveryRuleHaveTheCpusBits) {
  struct Named {
    const char* name;
    double momentum;
    bool nesterov;
  };
  constexpr Named kRules[] = {{"AdamW", 0, false}, {"Adam", 0, false}, {"SGD", 0, false},
                              {"SGD", 0.9, false}, {"SGD", 0.9, true}, {"Lion", 0, false}};
  for (const auto& rule : kRules)
    for (const auto dtype : {at::kFloat, at::kDouble})
      for (const auto compute : {at::kBFloat16, dtype, at::kByte})  // at::kByte: none
        for (const auto& [count, skip] :
             {std::pair<int64_t, int64_t>{1, 0}, {7, 0}, {4096, 0}, {4099, 0}, {4099, 1}, {4099, 4}}) {
          SCOPED_TRACE(std::string(rule.name) + (rule.nesterov ? " nesterov " : " ") + c10::toString(dtype) +
                       ", compute " + c10::toString(compute) + ", count " + std::to_string(count) + " skip " +
                       std::to_string(skip));
          optim::OptimizerOptions options = optim::options_of(rule.name);
          options.lr = 0.01, options.weight_decay = 0.1, options.gradient_scale = 0.37;
          options.momentum = rule.momentum, options.nesterov = rule.nesterov;
          // Every operation is rounded as on the CPU: multiply-adds at the same places, exact divisions and roots.
          expect_same_bits(run_on_both([&, count = count, skip = skip](at::Device device) {
            return ten_steps(options, dtype, compute, count, skip, device);
          }));
        }
}

TEST_F(Cuda, LionStandsStillWithoutAGradientAndShowsOneThatIsNoNumber) {
  const at::Device gpu(at::kCUDA, 0);
  const at::Tensor master = at::ones({3}).to(gpu), m = at::zeros({3}).to(gpu);
  const at::Tensor gradient = at::tensor({0.f, -2.f, std::numeric_limits<float>::quiet_NaN()}).to(gpu);
  optim::OptimizerOptions options = optim::options_of("Lion");
  options.lr = 0.5, options.step = 1;
  const optim::DecaySegment all{0, 3, true};
  optim::optimizer_update(master, std::array{m}, gradient, {}, {&all, 1}, options);
  EXPECT_EQ(master[0].item<float>(), 1);
  EXPECT_EQ(master[1].item<float>(), 1.5f);
  EXPECT_TRUE(std::isnan(master[2].item<float>()));
}

TEST_F(Cuda, SquaredNormPartialsHaveTheCpusBits) {
  for (const auto dtype : {at::kFloat, at::kDouble})
    for (const int64_t count : {0, 1, 31, 33, 4096, 4097, 3 * 4096 + 1000, 200 * 4096 + 77})
      for (const int64_t skip : {0, 1}) {
        SCOPED_TRACE(std::string(c10::toString(dtype)) + " count " + std::to_string(count));
        expect_same_bits(run_on_both([&](at::Device device) -> Outputs {
          const at::Tensor gradient = random({count + skip}, dtype, 1).to(device).narrow(0, skip, count);
          const int64_t blocks = (count + optim::kNormBlock - 1) / optim::kNormBlock;
          const at::Tensor partials = poisoned({blocks}, at::kDouble, device);
          optim::squared_norm_partials(partials, gradient);
          return {partials};
        }));
      }
}

}  // namespace
}  // namespace trireme::ops
