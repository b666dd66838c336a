// Documents that share a sequence: packed they learn what they learn alone, on any mesh.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <utility>
#include <vector>

#include "support.h"
#include "trireme/base/error.h"

namespace trireme::engine {
namespace {

constexpr int64_t kSequence = 16;
constexpr model::DocumentRequest kApart{.attention = true, .positions = true};

// Rows of one engine: tokens, targets and starts of each sequence.
struct Rows {
  explicit Rows(int64_t count)
      : tokens(at::zeros({count, kSequence}, at::kLong)),
        targets(at::full({count, kSequence}, -100, at::kLong)),
        starts(at::zeros({count, kSequence}, at::kLong)) {}
  at::Tensor tokens, targets, starts;
};

int64_t token(int64_t document, int64_t i, int64_t vocabulary) { return (17 * document + 5 * i * i + 3) % vocabulary; }

// Writes a document of `length` tokens to row `row` from `first` on.
void write(Rows& rows, int64_t row, int64_t first, int64_t document, int64_t length, int64_t vocabulary) {
  for (int64_t i = 0; i < length; ++i) {
    rows.tokens[row][first + i] = token(document, i, vocabulary);
    rows.targets[row][first + i] = token(document, i + 1, vocabulary);
    rows.starts[row][first + i] = first;
  }
}

const std::vector<int64_t> kLengths = {5, 4, 7};

Rows packed(int64_t vocabulary) {
  Rows rows(1);
  int64_t at = 0;
  for (size_t d = 0; d < kLengths.size(); at += kLengths[d++])
    write(rows, 0, at, static_cast<int64_t>(d), kLengths[d], vocabulary);
  return rows;
}

Rows unpacked(int64_t vocabulary) {
  Rows rows(static_cast<int64_t>(kLengths.size()));
  for (size_t d = 0; d < kLengths.size(); ++d) {
    const auto row = static_cast<int64_t>(d);
    write(rows, row, 0, row, kLengths[d], vocabulary);
    rows.starts[row].narrow(0, kLengths[d], kSequence - kLengths[d]).fill_(kLengths[d]);  // the padding is another
  }
  return rows;
}

// One rank's engine for rows of that number.
class Alone {
 public:
  Alone(const model::ModelConfig& config, const model::Precision& precision, int64_t rows,
        model::DocumentRequest documents = kApart)
      : model_(model::build_model(config, precision)) {
    plan::StepPlan plan =
        plan::make_step_plan(model_, {.precision = precision, .shape = {rows, kSequence}, .documents = documents});
    const Communicators communicators = connect(plan, {.name = ""});
    engine_ = std::make_unique<Engine>(model_, std::move(plan), communicators);
    engine_->initialize(5);
  }

  /// Loss of each supervised token, in the order of the rows.
  std::vector<double> losses(const Rows& rows) {
    std::vector<double> each;
    const at::Tensor flat = rows.targets.flatten();
    for (int64_t i = 0; i < flat.numel(); ++i) {
      if (flat[i].item<int64_t>() < 0) continue;
      const at::Tensor one = at::full_like(flat, -100);
      one[i] = flat[i];
      each.push_back(engine_->evaluate(loader(rows, one), 1));
    }
    return each;
  }

  at::Tensor gradients(const Rows& rows) {
    StepInputs inputs{.load_batch = loader(rows, rows.targets.flatten()),
                      .supervised_tokens = rows.targets.ge(0).sum().item<int64_t>(),
                      .optimizer = {.lr = 0, .weight_decay = 0, .step = 1}};
    engine_->train_step(inputs);
    std::vector<at::Tensor> all;
    for (const GroupState& g : engine_->state()) all.push_back(g.gradient.clone());
    return at::cat(all);
  }

 private:
  LoadBatch loader(const Rows& rows, const at::Tensor& targets) {
    return [this, rows, targets](int, const BatchTensors& to) {
      at::Tensor(to.inputs).copy_(rows.tokens.flatten());
      at::Tensor(to.targets).copy_(targets);
      load_documents(to, engine_->plan().request, rows.starts.flatten());
      if (to.text_length != nullptr) *to.text_length = std::ranges::max(kLengths);  // padding is no text
    };
  }

  model::Model model_;
  std::unique_ptr<Engine> engine_;
};

class Documents : public testing::TestWithParam<const char*> {};

TEST_P(Documents, PackedAndUnpackedHaveTheSameLossOfEveryToken) {
  const model::ModelConfig config = small_model(GetParam());
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const model::Precision precision{dtype, dtype};
    const std::vector<double> together = Alone(config, precision, 1).losses(packed(config.vocab_size)),
                              alone = Alone(config, precision, 3).losses(unpacked(config.vocab_size));
    ASSERT_EQ(together.size(), 16u);
    ASSERT_EQ(alone.size(), 16u);
    for (size_t i = 0; i < alone.size(); ++i)
      EXPECT_NEAR(together[i], alone[i], dtype == at::kFloat ? 1e-6 : 1e-14) << "token " << i;
  }
}

TEST_P(Documents, PackedAndUnpackedHaveTheSameGradients) {
  const model::ModelConfig config = small_model(GetParam());
  const model::Precision precision{at::kDouble, at::kDouble};
  const at::Tensor together = Alone(config, precision, 1).gradients(packed(config.vocab_size)),
                   alone = Alone(config, precision, 3).gradients(unpacked(config.vocab_size));
  // The same sums in another order.
  EXPECT_LT(relative_distance(together, alone), 1e-14);
}

TEST_P(Documents, ADocumentDoesNotFeelItsNeighbours) {
  const model::ModelConfig config = small_model(GetParam());
  const model::Precision precision{at::kFloat, at::kFloat};
  Rows one = packed(config.vocab_size), other = packed(config.vocab_size);
  for (const int64_t i : {0, 3, 11, 15}) other.tokens[0][i] = (one.tokens[0][i] + 1) % config.vocab_size;
  const auto losses = [&](const Rows& rows, model::DocumentRequest documents) {
    return Alone(config, precision, 1, documents).losses(rows);
  };
  const std::vector<double> before = losses(one, kApart), after = losses(other, kApart);
  for (size_t i = 5; i < 9; ++i) EXPECT_EQ(before[i], after[i]) << "token " << i;
  EXPECT_NE(before[2], after[2]);
  // Without the mask it does, from the first changed token on.
  const std::vector<double> mixed = losses(one, {}), changed = losses(other, {});
  EXPECT_NE(mixed[6], changed[6]);
}

INSTANTIATE_TEST_SUITE_P(Families, Documents, testing::Values("llama", "gpt2", "gemma3"));

// Up to `original` positions its frequencies are the short ones.
model::ModelConfig longrope_model(double original, std::vector<double> long_factor) {
  model::ModelConfig config = small_model("llama");
  config.rope_scaling = {.type = model::RopeScaling::Type::longrope,
                         .factor = 4,
                         .original_max_position_embeddings = original,
                         .short_factor = {1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5},
                         .long_factor = std::move(long_factor)};
  return config;
}

TEST(DocumentsAndLongrope, TheLongestDocumentChoosesTheFrequencies) {
  const model::DocumentRequest documents{.attention = true, .positions = true, .lengths = true};
  const model::Precision precision{at::kDouble, at::kDouble};
  const auto losses = [&](double original, double factor, const Rows& rows) {
    const model::ModelConfig config = longrope_model(original, std::vector<double>(8, factor));
    return Alone(config, precision, rows.tokens.size(0), documents).losses(rows);
  };
  const Rows row = packed(61), rows = unpacked(61);
  EXPECT_EQ(losses(7, 5, row), losses(7, 9, row));  // 7 tokens are not long, though the row has 16
  EXPECT_EQ(losses(7, 5, rows), losses(7, 9, rows));
  EXPECT_NE(losses(6, 5, row), losses(6, 9, row));
  const std::vector<double> together = losses(6, 5, row), alone = losses(6, 5, rows);
  ASSERT_EQ(together.size(), alone.size());
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(together[i], alone[i], 1e-14) << "token " << i;
}

Job job_of(const std::string& family) {
  Job job;
  job.model = small_model(family);
  job.precision = {at::kDouble, at::kDouble};
  job.documents = kApart;
  job.ragged = true;
  return job;
}

struct Way {
  const char* name;
  comm::MeshSizes mesh;
  plan::Strategy strategy = plan::Strategy::no_shard;
  bool sequence_parallel = false;
  const char* pipeline = "1f1b";
  schedule::Recompute recompute = schedule::Recompute::none;
  double tolerance = 1e-10;  ///< 0: the same bits
};

void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

Job on_mesh(Job job, const Way& way) {
  job.mesh = way.mesh;
  job.strategy = way.strategy;
  job.sequence_parallel = way.sequence_parallel;
  job.context = model::Context::ulysses;
  job.pipeline.schedule = way.pipeline;
  job.recompute.mode = way.recompute;
  job.poison = true;
  return job;
}

class DocumentsOnMeshes : public testing::TestWithParam<Way> {};

TEST_P(DocumentsOnMeshes, TrainLikeOneRank) {
  const Way& way = GetParam();
  for (const char* family : {"llama", "gpt2"}) {
    Job job = job_of(family);
    if (family == std::string("gpt2")) {  // heads that two ranks can share
      job.model.num_attention_heads = job.model.num_key_value_heads = 4;
      job.model.head_dim = 12;
    }
    const Outcome one = run(job);
    const Outcome all = run(on_mesh(job, way));
    EXPECT_LE(relative_distance(all.gradients, one.gradients), way.tolerance) << family;
    EXPECT_LE(relative_distance(all.parameters, one.parameters), way.tolerance) << family;
    EXPECT_NEAR(all.evaluation, one.evaluation, way.tolerance) << family;
  }
}

// Each micro-batch has its own longest document: some are long here, others are not.
TEST_P(DocumentsOnMeshes, TakeTheFrequenciesOfTheirMicroBatch) {
  const Way& way = GetParam();
  for (const auto type : {model::RopeScaling::Type::longrope, model::RopeScaling::Type::dynamic}) {
    Job job = job_of("llama");
    job.model = longrope_model(5, {1, 2, 3, 4, 5, 6, 7, 8});
    job.model.rope_scaling.type = type;
    job.shape.micro_batch = 1;
    job.documents.lengths = true;
    const Outcome one = run(job);
    Job other = job;
    other.documents.lengths = false;
    EXPECT_GT(relative_distance(run(other).gradients, one.gradients), 1e-6);
    const Outcome all = run(on_mesh(job, way));
    EXPECT_LE(relative_distance(all.gradients, one.gradients), way.tolerance);
    EXPECT_LE(relative_distance(all.parameters, one.parameters), way.tolerance);
    EXPECT_NEAR(all.evaluation, one.evaluation, way.tolerance);
  }
}

// Stages without the first block learn the length too, though documents are not kept apart.
TEST(TextLengths, ReachEveryStage) {
  Job job = job_of("llama");
  job.model = longrope_model(13, {1, 2, 3, 4, 5, 6, 7, 8});
  job.shape.micro_batch = 1;
  job.documents = {};
  const Outcome whole_rows = run(job);
  job.documents = {.lengths = true};
  const Outcome one = run(job);
  EXPECT_GT(relative_distance(whole_rows.gradients, one.gradients), 1e-6);
  job.mesh = {.pp = 3, .shard = 1};
  job.poison = true;
  EXPECT_LE(relative_distance(run(job).gradients, one.gradients), 1e-10);
}

using Mode = schedule::Recompute;
INSTANTIATE_TEST_SUITE_P(
    Ways, DocumentsOnMeshes,
    testing::Values(
        Way{"recompute", {.shard = 1}, plan::Strategy::no_shard, false, "1f1b", Mode::full, 0},
        Way{"shard", {.shard = 2}, plan::Strategy::full_shard, false, "1f1b", Mode::full, 0},
        Way{"replicate", {.replicate = 2, .shard = 1}, plan::Strategy::no_shard, false, "1f1b", Mode::none, 0},
        Way{"tp", {.shard = 1, .tp = 2}},
        Way{"tp_sequence", {.shard = 1, .tp = 2}, plan::Strategy::no_shard, true, "1f1b", Mode::selective},
        Way{"ulysses", {.shard = 1, .cp = 2}, plan::Strategy::full_shard, false, "1f1b", Mode::full},
        Way{"pipeline", {.pp = 3, .shard = 1}, plan::Strategy::no_shard, false, "1f1b", Mode::full},
        Way{"zero_bubble", {.pp = 2, .shard = 1}, plan::Strategy::zero1, false, "zb_v"},
        Way{"interleaved", {.pp = 2, .shard = 1}, plan::Strategy::no_shard, false, "interleaved_1f1b"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(DocumentsInARing, AttentionInsideDocumentsIsRefusedAndPositionsAreNot) {
  Job job = job_of("gpt2");
  job.documents = {.positions = true};
  const Outcome one = run(job);
  job.mesh = {.shard = 1, .cp = 2};
  const Outcome ring = run(job);
  EXPECT_LT(relative_distance(ring.gradients, one.gradients), 1e-10);
  job.documents = kApart;
  try {
    run(job);
    FAIL() << "nothing was refused";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "data.reset_attention_mask keeps attention inside documents, which ring attention cannot; use "
                 "--mesh.context ulysses");
  }
}

}  // namespace
}  // namespace trireme::engine
