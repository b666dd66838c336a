// The parallel layers themselves: on one rank those of torch::nn, on several their parts; and what is refused, in
// words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "examples/transformer_layer/model.h"
#include "examples/vit/images.h"
#include "support.h"
#include "trireme/base/error.h"
#include "trireme/comm/factory.h"
#include "trireme/model/parallel_layers.h"

namespace trireme::engine {
namespace {

namespace nn = torch::nn;
using testing::HasSubstr;

TensorRanksPtr place(int rank, int size, bool sequence = false) {
  return std::make_shared<TensorRanks>(
      model::Parallel{.tp_rank = rank, .tp_size = size, .sequence_parallel = sequence});
}

template <class Module>
Module seeded(const std::function<Module()>& make) {
  torch::manual_seed(11);
  return make();
}

TEST(ParallelLayer, OnOneRankTheyAreTheLayersOfTorch) {
  const at::Tensor x = own_model::numbers(1, {2, 3, 6}), ids = torch::arange(6).view({2, 3});
  auto plain = seeded<nn::Linear>([] { return nn::Linear(6, 8); });
  auto column = seeded<ColumnParallelLinear>([] { return ColumnParallelLinear(place(0, 1), 6, 8); });
  auto row = seeded<RowParallelLinear>([] { return RowParallelLinear(place(0, 1), 6, 8); });
  EXPECT_TRUE(at::equal(plain->forward(x), column->forward(x)));
  EXPECT_TRUE(at::equal(plain->forward(x), row->forward(x)));
  auto table = seeded<nn::Embedding>([] { return nn::Embedding(6, 4); });
  auto parallel = seeded<VocabParallelEmbedding>([] { return VocabParallelEmbedding(place(0, 1), 6, 4); });
  EXPECT_TRUE(at::equal(table->forward(ids), parallel->forward(ids)));
}

TEST(ParallelLayer, EachRankKeepsItsPartOfWhatOneRankDraws) {
  auto plain = seeded<nn::Linear>([] { return nn::Linear(6, 12); });
  for (const int rank : {0, 1}) {
    auto column = seeded<ColumnParallelLinear>(
        [&] { return ColumnParallelLinear(place(rank, 2), 6, 12, ColumnOptions{.matrices = 3}); });
    // Matrices 0..3, 4..7 and 8..11: a rank has two rows of each.
    const at::Tensor rows = torch::tensor({0, 1, 4, 5, 8, 9}) + 2 * rank;
    EXPECT_TRUE(at::equal(column->weight, plain->weight.index_select(0, rows)));
    EXPECT_TRUE(at::equal(column->bias, plain->bias.index_select(0, rows)));
    auto row = seeded<RowParallelLinear>([&] { return RowParallelLinear(place(rank, 2), 6, 12); });
    EXPECT_TRUE(at::equal(row->weight, plain->weight.narrow(1, 3 * rank, 3)));
    EXPECT_TRUE(at::equal(row->bias, plain->bias));
  }
}

// Gathered columns, with and without several matrices, and the loss of a divided vocabulary.
TEST(ParallelLayer, GatheredColumnsAndTheDividedLossAreThoseOfOneRank) {
  const at::Tensor x = own_model::numbers(1, {4, 6}).to(at::kDouble), labels = torch::tensor({5, -100, 0, 11});
  const auto layer = [](const TensorRanksPtr& ranks, const ColumnOptions& options) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    torch::manual_seed(11);
    ColumnParallelLinear made(ranks, 6, 12, options);
    made->to(at::kDouble);
    return made;
  };
  const auto alone = place(0, 1);
  const at::Tensor whole = layer(alone, {})->forward(x);
  const at::Tensor judge = nn::functional::cross_entropy(
      whole, labels, nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum).ignore_index(-100));
  EXPECT_NEAR(vocab_parallel_cross_entropy(alone, whole, labels).item<double>(), judge.item<double>(), 1e-12);
  on_threads(2, [&](int rank, comm::GroupOptions options) {
    options.name = "tp";
    const auto group = comm::make_communicator(options);
    const auto ranks = place(rank, 2);
    ranks->connect(group);
    for (const int64_t matrices : {1, 3})
      EXPECT_TRUE(
          at::allclose(layer(ranks, {.matrices = matrices, .gather_output = true})->forward(x), whole, 0, 1e-14));
    const at::Tensor part = layer(ranks, {})->forward(x);
    EXPECT_EQ(part.size(1), 6);
    EXPECT_NEAR(vocab_parallel_cross_entropy(ranks, part, labels).item<double>(), judge.item<double>(), 1e-12);
    EXPECT_EQ(ranks->max(at::full({1}, double(rank))).item<double>(), 1);
  });
}

TEST(ParallelLayer, RefusesSizesThatTheRanksCannotShare) {
  const auto three = place(0, 3);
  EXPECT_THAT(
      message_of<UsageError>([&] { ColumnParallelLinear(three, 6, 8); }),
      HasSubstr("8 outputs of a column parallel matrix cannot be shared evenly by tp=3 ranks; take a number that "
                "is a multiple of 3, or another mesh.tp"));
  EXPECT_THAT(message_of<UsageError>([&] { ColumnParallelLinear(three, 6, 8, ColumnOptions{.matrices = 3}); }),
              HasSubstr("8 outputs of a column parallel layer are not 3 equal matrices"));
  EXPECT_THAT(message_of<UsageError>([&] { RowParallelLinear(three, 8, 6); }),
              HasSubstr("8 inputs of a row parallel matrix cannot be shared evenly by tp=3 ranks"));
  EXPECT_THAT(message_of<UsageError>([&] { VocabParallelEmbedding(three, 31, 6); }),
              HasSubstr("31 rows of a vocabulary parallel table cannot be shared evenly by tp=3 ranks"));
  EXPECT_THAT(message_of<UsageError>([&] { parallel_example::TransformerLayer(three, 48, 4); }),
              HasSubstr("4 attention heads cannot be shared evenly by tp=3 ranks"));
  EXPECT_THAT(message_of<UsageError>([] { ColumnParallelLinear(nullptr, 6, 8); }), HasSubstr("needs a TensorRanks"));
}

model::Model vit(const TensorRanksPtr& ranks, const parallel_example::VitOptions& o, const model::Parallel& parallel) {
  return build_model(parallel_example::Vit(ranks, o).parts(), parallel_example::image_batch(0, 2, o), {}, parallel);
}

TEST(ParallelLayer, RefusesTokensThatSequenceParallelRanksCannotShare) {
  const auto ranks = place(0, 2, true);
  const parallel_example::VitOptions square{.height = 16, .width = 16};  // 16 patches and CLS
  EXPECT_THAT(
      message_of<ShapeError>([&] { vit(ranks, square, ranks->parallel()); }),
      HasSubstr("dimension -2 of a tensor of shape [2, 17, 48] cannot be shared evenly by tp=2 ranks; make it a "
                "multiple of 2, or leave sequence parallelism off"));
}

TEST(ParallelLayer, RefusesModelsThatAreNotBuiltForItsRank) {
  const auto ranks = place(1, 2, true), other = place(1, 2, true);
  EXPECT_THAT(
      message_of<UsageError>([&] { vit(ranks, {}, {}); }),
      HasSubstr("'layer 0' was made for rank 1 of tp=2 with sequence parallelism, the model is built for rank 0 "
                "of tp=1; give build_model the parallel() of its TensorRanks"));
  auto parts = parallel_example::Vit(ranks).parts();
  parts.insert(parts.begin() + 1, wrap("layer", parallel_example::TransformerLayer(other, 48, 4)));
  EXPECT_THAT(message_of<UsageError>(
                  [&] { build_model(std::move(parts), parallel_example::image_batch(0, 2), {}, ranks->parallel()); }),
              HasSubstr("'layer 0' has a parallel layer of another TensorRanks; make one"));
  TrainerOptions options{.ranks = {.rank = 0, .size = 2}, .mesh = {.shard = 1, .tp = 2}};
  EXPECT_THAT(message_of<UsageError>([&] { Trainer(vit(place(0, 1), {}, {}), options); }),
              HasSubstr("the model is built for rank 0 of tp 1"));
}

TEST(ParallelLayer, RefusesTensorRanksWithNothingToDivideAndRandomNumbers) {
  const model::Example example{torch::ones({4, 6}), torch::zeros({4, 6})};
  const auto ranks = place(0, 2);
  EXPECT_THAT(message_of<UsageError>([&] {
                build_model({wrap_loss("head", nn::Linear(6, 6), square_loss)}, example, {}, ranks->parallel());
              }),
              HasSubstr("tp=2, but no module has a parallel layer, so all ranks would compute the same; use "
                        "ColumnParallelLinear"));
  nn::Sequential dropped(ColumnParallelLinear(ranks, 6, 8), nn::Dropout(0.5), RowParallelLinear(ranks, 8, 6));
  EXPECT_THAT(message_of<UsageError>(
                  [&] { build_model({wrap("mlp", dropped), wrap_loss(square_loss)}, example, {}, ranks->parallel()); }),
              HasSubstr("'mlp' draws random numbers (dropout?), which would differ between the tp=2 ranks"));
}

TEST(ParallelLayer, OutsideAModelItSaysWhatItNeeds) {
  RowParallelLinear row(place(0, 2), 8, 6);
  EXPECT_THAT(message_of<UsageError>([&] { row(torch::ones({3, 4})); }),
              HasSubstr("a parallel layer of tp=2 runs inside the steps of a model (build_model, Trainer); elsewhere, "
                        "give its TensorRanks a communicator (connect)"));
}

TEST(ParallelLayer, AnIdOutsideTheVocabularyIsNamed) {
  VocabParallelEmbedding table(place(0, 1), 6, 4);
  EXPECT_THAT(message_of<ShapeError>([&] { table(torch::tensor({1, 6})); }), HasSubstr("= 6 is outside"));
}

// Scores by the rows of a divided table, which another part has: no parallel layer, and another name.
struct TiedScoresImpl : nn::Module {
  explicit TiedScoresImpl(const at::Tensor& table) { rows = register_parameter("rows", table); }
  at::Tensor forward(const at::Tensor& x) { return at::linear(x, rows); }
  at::Tensor rows;
};
TORCH_MODULE(TiedScores);

TEST(ParallelLayer, ATableThatScoresToo) {
  const auto outcome = [](const comm::MeshSizes& mesh) {
    std::vector<double> found;
    on_threads(mesh.shard * mesh.tp, [&](int rank, const comm::GroupOptions& group) {
      const TrainerOptions options{
          .ranks = group, .mesh = mesh, .precision = {at::kDouble, at::kDouble}, .poison = true};
      const auto ranks = tensor_ranks(options);
      static std::mutex mutex;
      std::unique_lock lock(mutex);
      torch::manual_seed(3);
      VocabParallelEmbedding table(ranks, 12, 6);
      const model::Example batch{torch::arange(8).view({2, 4}), torch::arange(8).view({2, 4}) + 2};
      std::vector<Wrapped> parts{wrap("table", table),
                                 wrap_loss("scores", TiedScores(table->weight), [ranks](const auto& s, const auto& t) {
                                   return vocab_parallel_cross_entropy(ranks, s, t);
                                 })};
      model::Model built = build_model(std::move(parts), batch, options.precision, ranks->parallel());
      lock.unlock();
      Trainer trainer(std::move(built), options);
      for (int step = 0; step < 4; ++step) {
        trainer.backward(batch.inputs, batch.targets);
        const StepResult result = trainer.step(1e-2);
        if (rank == 0) found.insert(found.end(), {result.loss, result.gradient_norm});
      }
      ASSERT_EQ(trainer.parameters().size(), 1U);
      EXPECT_EQ(trainer.parameters()[0].tensor.sizes(), at::IntArrayRef({12, 6}));
    });
    return found;
  };
  const auto one = outcome({.shard = 1}), two = outcome({.shard = 1, .tp = 2}), four = outcome({.shard = 2, .tp = 2});
  EXPECT_LT(one[6], one[0]);
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_NEAR(one[i], two[i], kTolerance);
    EXPECT_NEAR(one[i], four[i], kTolerance);
  }
}

// After store() each module has its own part again, and the layers work with a communicator of one's own.
TEST(ParallelLayer, StoredModulesRunByThemselves) {
  const auto outcome = [](const comm::MeshSizes& mesh) {
    at::Tensor scores;
    on_threads(mesh.tp, [&](int rank, comm::GroupOptions group) {
      const TrainerOptions options{.ranks = group, .mesh = mesh, .precision = {at::kDouble, at::kDouble}};
      const auto ranks = tensor_ranks(options);
      static std::mutex mutex;
      std::unique_lock lock(mutex);
      torch::manual_seed(3);
      parallel_example::Vit vit(ranks);
      const model::Example batch = parallel_example::image_batch(0, 2);
      model::Model built = build_model(vit.parts(), batch, options.precision, ranks->parallel());
      lock.unlock();
      Trainer trainer(std::move(built), options);
      trainer.backward(batch.inputs, batch.targets);
      trainer.step(1e-2);
      trainer.store();
      group.name = "own";
      const auto own = comm::make_communicator(group);
      ranks->connect(own);
      const at::Tensor y = vit.scores(batch.inputs.to(at::kDouble)).detach();
      if (rank == 0) scores = y;
    });
    return scores;
  };
  EXPECT_TRUE(at::allclose(outcome({.shard = 1}), outcome({.shard = 1, .tp = 2}), 0, 1e-12));
}

}  // namespace
}  // namespace trireme::engine
