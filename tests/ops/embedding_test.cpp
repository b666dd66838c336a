#include <gtest/gtest.h>

#include <algorithm>

#include "tests/ops/reference.h"
#include "tests/ops/support.h"
#include "trireme/base/error.h"
#include "trireme/ops/ops.h"

namespace trireme::ops::test {
namespace {

constexpr int64_t kVocabulary = 23, kSequence = 6, kEmbeddingBatch = 5, kMaxPositions = 8;

/// Few ids, so that most repeat, and the first and last row of the table among them.
at::Tensor repeated_ids(int64_t num_tokens, int64_t vocabulary) {
  const auto ids = at::arange(num_tokens, at::kLong).square().remainder(vocabulary - 1);
  return at::where(at::arange(num_tokens).remainder(7).eq(3), at::full_like(ids, vocabulary - 1), ids);
}

at::Tensor embed(const at::Tensor& ids, const at::Tensor& table, const at::Tensor& positions) {
  const auto y = unwritten({ids.size(0), table.size(1)}, table.scalar_type());
  embedding_forward(y, ids, table, positions, kSequence);
  return y;
}

TEST(Embedding, AgreesWithTheReferenceWithAndWithoutPositions) {
  const auto ids = repeated_ids(kEmbeddingBatch * kSequence, kVocabulary), order = at::empty_like(ids);
  for_each_case([&](at::ScalarType dtype) {
    for (const int64_t width : {1, 16, 67}) {
      const auto table = random({kVocabulary, width}, dtype, 1), positions = random({kMaxPositions, width}, dtype, 2),
                 dy = random({ids.size(0), width}, dtype, 3);
      expect_same_bits(embed(ids, table, {}), at::embedding(table, ids), "y without positions");
      expect_close(embed(ids, table, positions),
                   reference::embedding(ids, table.to(at::kDouble), positions.to(at::kDouble), kSequence), "y");

      const auto gradients = autograd(
          [&](const auto& in) { return reference::embedding(ids, in[0], in[1], kSequence); }, {table, positions}, dy);
      const auto dtable = unwritten(table.sizes(), dtype), d_positions = unwritten(positions.sizes(), dtype);
      embedding_backward(dtable, d_positions, dy, ids, order, kSequence);
      expect_close(dtable, gradients[0], "dtable");
      expect_close(d_positions, gradients[1], "d_positions");
      const auto dtable_alone = unwritten(table.sizes(), dtype);
      embedding_backward(dtable_alone, {}, dy, ids, order, kSequence);
      expect_same_bits(dtable_alone, dtable, "dtable without positions");
    }
  });
}

TEST(EmbeddingColumns, AgreeWithTheReferenceAndLeaveIdsOfOtherRanksOut) {
  constexpr int64_t kRank = 3;
  at::Tensor ids = repeated_ids(kEmbeddingBatch * kSequence, kVocabulary);
  ids[4] = ids[9] = -1;
  const at::Tensor here = ids.ge(0).unsqueeze(1), rows = ids.clamp_min(0), order = at::empty_like(ids);
  for_each_case([&](at::ScalarType dtype) {
    const auto table = random({kRank, kVocabulary}, dtype, 1), dy = random({ids.size(0), kRank}, dtype, 2),
               y = unwritten({ids.size(0), kRank}, dtype);
    const auto reference = [&](const auto& in) { return 2.5 * at::embedding(in[0].t(), rows) * here; };
    embedding_columns_forward(y, ids, table, 2.5);
    expect_close(y, reference(std::vector{table.to(at::kDouble)}), "y");
    const at::Tensor expected = autograd(reference, {table}, dy)[0];
    const auto wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor written = unwritten(table.sizes(), dtype);
    embedding_columns_backward(written, dy, ids, order, 2.5);
    expect_close(written, expected, "dtable");
    const at::Tensor added = at::ones(table.sizes(), at::TensorOptions().dtype(wide));
    embedding_columns_backward({added, true}, dy, ids, order, 2.5);
    expect_close(added - 1, expected, "dtable, added to what was there");
  });
}

TEST(Embedding, RepeatedIdsAreSummedInFloat32InOrderOfTokens) {
  // In order: (1e8 + 1) - 1e8 = 0 in float32, then + 1 = 1. Any other order gives 2 or 0.
  const auto dy = at::tensor({1e8f, 1.0f, -1e8f, 1.0f}).unsqueeze(1), ids = at::full({4}, 1, at::kLong);
  const auto dtable = unwritten({3, 1}, at::kFloat);
  embedding_backward(dtable, {}, dy, ids, at::empty_like(ids), 4);
  EXPECT_EQ(dtable[1].item<float>(), 1.0f);
  EXPECT_EQ(dtable[0].item<float>(), 0.0f);
  EXPECT_EQ(dtable[2].item<float>(), 0.0f);

  // 256 + 1 is no bfloat16: summed in that type, the ones would be lost.
  const auto ones = at::cat({at::full({1, 1}, 256.0f), at::ones({64, 1})}).to(at::kBFloat16);
  const auto many = at::zeros({65}, at::kLong);
  const auto dtable_bf16 = unwritten({1, 1}, at::kBFloat16);
  embedding_backward(dtable_bf16, {}, ones, many, at::empty_like(many), 65);
  EXPECT_EQ(dtable_bf16.item<float>(), 320.0f);
}

TEST(Embedding, BackwardAgreesWithFiniteDifferences) {
  const auto ids = repeated_ids(2 * kSequence, 5);
  const auto table = random({5, 3}, at::kDouble, 1), positions = random({kSequence, 3}, at::kDouble, 2),
             dy = random({2 * kSequence, 3}, at::kDouble, 3);
  const auto expected =
      finite_differences([&](const auto& in) { return embed(ids, in[0], in[1]); }, {table, positions}, dy);
  const auto dtable = unwritten(table.sizes(), at::kDouble), d_positions = unwritten(positions.sizes(), at::kDouble);
  embedding_backward(dtable, d_positions, dy, ids, at::empty_like(ids), kSequence);
  EXPECT_LE(relative_error(dtable, expected[0]), 1e-8);
  EXPECT_LE(relative_error(d_positions, expected[1]), 1e-8);
}

TEST(Embedding, HasTheSameBitsOnAnyNumberOfThreads) {
  const auto ids = repeated_ids(3000, 700), order = at::empty_like(ids);
  const auto dy = random({3000, 130}, at::kBFloat16, 1), table = random({700, 130}, at::kBFloat16, 2);
  expect_same_on_all_threads([&] {
    const auto dtable = unwritten(table.sizes(), at::kBFloat16), d_positions = unwritten({6, 130}, at::kBFloat16);
    embedding_backward(dtable, d_positions, dy, ids, order, kSequence);
    return std::vector{embed(ids, table, d_positions), dtable, d_positions};
  });
}

TEST(Embedding, NamesTheFirstIdOutsideTheTable) {
  const auto table = at::zeros({10, 4});
  for (const int64_t bad : {int64_t{10}, int64_t{-2}}) {
    const auto ids = at::tensor({3, 9, 0, 0}, at::kLong);
    ids[2] = bad;
    try {
      embed(ids, table, {});
      FAIL() << "no error";
    } catch (const ShapeError& error) {
      EXPECT_EQ(error.what(), "embedding_forward: ids[2] = " + std::to_string(bad) +
                                  " is outside the table of 10 rows; the tokenizer and the model's vocabulary do not "
                                  "belong together");
    }
  }
  EXPECT_THROW(embed(at::zeros({6}, at::kLong), table, at::zeros({5, 4})), ShapeError) << "five positions for six";
}

/// Ids of which some lie on other ranks, the first among them.
at::Tensor ids_with_gaps(int64_t num_tokens) {
  const auto ids = repeated_ids(num_tokens, kVocabulary);
  return at::where(at::arange(num_tokens).remainder(3).eq(0), at::full_like(ids, -1), ids);
}

TEST(Embedding, RowsThatLieElsewhereReadAsZerosAndHaveNoGradient) {
  const auto ids = ids_with_gaps(kEmbeddingBatch * kSequence), order = at::empty_like(ids);
  for_each_case([&](at::ScalarType dtype) {
    const auto table = random({kVocabulary, 67}, dtype, 1), positions = random({kMaxPositions, 67}, dtype, 2),
               dy = random({ids.size(0), 67}, dtype, 3);
    expect_same_bits(embed(ids, table, {}), reference::embedding(ids, table, {}, kSequence), "y without positions");
    expect_close(embed(ids, table, positions),
                 reference::embedding(ids, table.to(at::kDouble), positions.to(at::kDouble), kSequence), "y");
    const auto gradients = autograd([&](const auto& in) { return reference::embedding(ids, in[0], in[1], kSequence); },
                                    {table, positions}, dy);
    const auto dtable = unwritten(table.sizes(), dtype), d_positions = unwritten(positions.sizes(), dtype);
    embedding_backward(dtable, d_positions, dy, ids, order, kSequence);
    expect_close(dtable, gradients[0], "dtable");
    expect_close(d_positions, gradients[1], "d_positions");
  });
  const auto none = at::full({4}, -1, at::kLong), dtable = unwritten({3, 2}, at::kFloat);
  embedding_backward(dtable, {}, at::ones({4, 2}), none, at::empty_like(none), 4);
  EXPECT_TRUE(dtable.eq(0).all().item<bool>());
}

TEST(Embedding, PositionsMayBeGivenByIndex) {
  // Context parallelism's halves: a rank holds rows 0, 1 and 6, 7 of a sequence of eight.
  const auto ids = ids_with_gaps(20), order = at::empty_like(ids);
  const auto position_ids = at::tensor({0, 1, 6, 7}, at::kLong).repeat({5});
  for_each_case([&](at::ScalarType dtype) {
    const auto table = random({kVocabulary, 19}, dtype, 1), positions = random({kMaxPositions, 19}, dtype, 2),
               dy = random({20, 19}, dtype, 3), y = unwritten({20, 19}, dtype);
    embedding_forward(y, ids, table, positions, 4, position_ids);
    expect_close(y, reference::embedding(ids, table.to(at::kDouble), positions.to(at::kDouble), 4, position_ids), "y");
    const auto gradients =
        autograd([&](const auto& in) { return reference::embedding(ids, in[0], in[1], 4, position_ids); },
                 {table, positions}, dy);
    const auto dtable = unwritten(table.sizes(), dtype), d_positions = unwritten(positions.sizes(), dtype);
    embedding_backward(dtable, d_positions, dy, ids, order, 4, position_ids);
    expect_close(dtable, gradients[0], "dtable");
    expect_close(d_positions, gradients[1], "d_positions");
    // The indices that t % S stands for give the same bits.
    const auto counted = unwritten({20, 19}, dtype), d_counted = unwritten(positions.sizes(), dtype);
    embedding_forward(counted, ids, table, positions, 4, at::arange(4, at::kLong).repeat({5}));
    embedding_forward(y, ids, table, positions, 4);
    expect_same_bits(counted, y, "y");
    embedding_backward(dtable, d_counted, dy, ids, order, 4, at::arange(4, at::kLong).repeat({5}));
    embedding_backward(dtable, d_positions, dy, ids, order, 4);
    expect_same_bits(d_counted, d_positions, "d_positions");
  });
}

TEST(Embedding, RowsAreScaledAndSoIsTheirGradient) {
  const auto ids = ids_with_gaps(kEmbeddingBatch * kSequence), order = at::empty_like(ids);
  for_each_case([&](at::ScalarType dtype) {
    for (const int64_t width : {67, 512}) {
      const auto table = random({kVocabulary, width}, dtype, 1), positions = random({kMaxPositions, width}, dtype, 2),
                 dy = random({ids.size(0), width}, dtype, 3), y = unwritten(dy.sizes(), dtype);
      const double scale = 50.5;
      embedding_forward(y, ids, table, {}, kSequence, {}, scale);
      // Rounded once; a product of two bfloat16 or a bfloat16 and a small number is exact in float32.
      expect_same_bits(y, (reference::embedding(ids, table.to(at::kDouble), {}, 0) * scale).to(dtype), "y");
      embedding_forward(y, ids, table, positions, kSequence, {}, scale);
      const auto reference = [&](const auto& in) {
        return reference::embedding(ids, in[0], in[1], kSequence, {}, scale);
      };
      expect_close(y, reference(std::vector{table.to(at::kDouble), positions.to(at::kDouble)}), "y with positions");
      const auto gradients = autograd(reference, {table, positions}, dy);
      const auto dtable = unwritten(table.sizes(), dtype), d_positions = unwritten(positions.sizes(), dtype);
      embedding_backward(dtable, d_positions, dy, ids, order, kSequence, {}, scale);
      expect_close(dtable, gradients[0], "dtable");
      expect_close(d_positions, gradients[1], "d_positions");
    }
  });
}

TEST(Embedding, NamesThePositionOutsideTheTable) {
  const auto table = at::zeros({10, 4}), ids = at::zeros({3}, at::kLong), y = at::zeros({3, 4});
  for (const int64_t bad : {int64_t{5}, int64_t{-1}}) {
    const auto position_ids = at::tensor(std::vector<int64_t>{0, 4, bad});
    try {
      embedding_forward(y, ids, table, at::zeros({5, 4}), 3, position_ids);
      FAIL() << "no error";
    } catch (const ShapeError& error) {
      EXPECT_EQ(error.what(), "embedding_forward: position_ids[2] = " + std::to_string(bad) +
                                  " is outside positions of 5 rows; shorten the sequences or give the model more "
                                  "positions");
    }
    EXPECT_THROW(embedding_backward(table, at::zeros({5, 4}), y, ids, at::empty_like(ids), 3, position_ids),
                 ShapeError);
    embedding_forward(y, ids, table, {}, 3, position_ids);  // not read without positions
  }
}

}  // namespace
}  // namespace trireme::ops::test
