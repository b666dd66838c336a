// Units on tensor-parallel and context-parallel ranks against the same model on one.
#include <cmath>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel_harness.h"
#include "trireme/base/error.h"
#include "trireme/model/embedding.h"

namespace trireme::model {
namespace {

using ::testing::HasSubstr;

// 61 tokens: divisible by no number of ranks.
ModelConfig llama(int64_t kv_heads, bool tied) {
  ModelConfig c;
  c.vocab_size = 61;
  c.hidden_size = 32;
  c.intermediate_size = 48;
  c.num_hidden_layers = 2;
  c.num_attention_heads = 8;
  c.num_key_value_heads = kv_heads;
  c.head_dim = 4;
  c.max_position_embeddings = 24;
  c.initializer_range = 0.2;
  c.tie_word_embeddings = tied;
  return c;
}

ModelConfig gpt2(bool tied) {
  ModelConfig c = llama(8, tied);
  set_architecture(c, Architecture::gpt2);
  return c;
}

// The families' own parts, all of them: biases of q, k and v; norms of heads; windows, in all blocks or by turns; norms
// of branches; soft caps; two rotary bases, one of them scaled.
ModelConfig qwen2(int64_t kv_heads) {
  ModelConfig c = llama(kv_heads, true);
  c.architecture = Architecture::qwen2;
  c.attention_bias = true;
  return c;
}

ModelConfig qwen3(int64_t kv_heads) {
  ModelConfig c = llama(kv_heads, false);
  c.architecture = Architecture::qwen3;
  c.query_key_norm = true;
  c.sliding_window = 5;
  c.windowed = {false, true};
  return c;
}

ModelConfig gemma2() {
  ModelConfig c = llama(4, true);
  c.architecture = Architecture::gemma2;
  c.norm_offset = 1;
  c.activation = Activation::gelu_tanh;
  c.post_norms = c.scaled_embedding = true;
  c.attention_scale = 0.4;
  c.attention_softcap = 3;
  c.logit_softcap = 2;
  c.sliding_window = 5;
  c.windowed = {true, false};
  return c;
}

ModelConfig gemma3(int64_t kv_heads) {
  ModelConfig c = gemma2();
  c.architecture = Architecture::gemma3;
  c.num_key_value_heads = kv_heads;
  c.query_key_norm = true;
  c.attention_softcap = c.logit_softcap = 0;
  c.rope_local_theta = 50;
  c.rope_scaling = {.type = RopeScaling::Type::linear, .factor = 4};
  return c;
}

ModelConfig with_all_biases() {
  ModelConfig c = llama(2, false);
  c.attention_bias = c.attention_out_bias = c.mlp_bias = true;
  c.sliding_window = 7;
  c.rope_scaling = {.type = RopeScaling::Type::yarn, .factor = 4, .original_max_position_embeddings = 8};
  return c;
}

// Ring attention takes no windows; everything else of these models it does.
ModelConfig without_windows(ModelConfig c) {
  c.sliding_window = 0;
  c.windowed.clear();
  return c;
}

bool takes(const ModelConfig& c, int cp, Context context) {
  return cp == 1 || context == Context::ulysses || c.sliding_window == 0;
}

std::string describe(const UnitRun& r) {
  return fmt::format("{} kv={} tied={} tp={} sp={} cp={} {} split={} recompute={}", model_type(r.config.architecture),
                     r.config.num_key_value_heads, r.config.tie_word_embeddings, r.tp, r.sequence_parallel, r.cp,
                     r.context == Context::ring ? "ring" : "ulysses", r.split, r.recompute);
}

std::vector<UnitRun> divisions(const ModelConfig& config) {
  std::vector<UnitRun> runs;
  for (const int tp : {1, 2, 4})
    for (const int cp : {1, 2, 4})
      for (const bool sequence : {false, true})
        for (const Context context : {Context::ring, Context::ulysses}) {
          if (tp * cp == 1 || tp * cp > 8 || (sequence && tp == 1) || (cp == 1 && context == Context::ulysses))
            continue;
          if ((context == Context::ulysses && 8 / tp % cp != 0) || !takes(config, cp, context)) continue;
          runs.push_back({.config = config, .tp = tp, .cp = cp, .sequence_parallel = sequence, .context = context});
        }
  return runs;
}

// float64: what differs is the order of sums of a few dozen terms.
constexpr double kTolerance = 1e-12;

void expect_same_as_one_rank(const UnitRun& run, const std::vector<RankResult>& one) {
  SCOPED_TRACE(describe(run));
  const std::vector<RankResult> ranks = run_units(run);
  for (const RankResult& rank : ranks)
    for (const std::string& error : rank.traffic_errors) ADD_FAILURE() << error;
  EXPECT_NEAR(whole_loss(ranks), whole_loss(one), kTolerance * std::abs(whole_loss(one)));
  for (size_t i = 0; i < one[0].boundaries.size(); ++i)
    EXPECT_LT(relative_distance(whole_boundary(run, ranks, i),
                                whole_boundary({.config = run.config, .shape = run.shape}, one, i)),
              kTolerance)
        << "gradient of the input of unit " << i + 1;
  const auto gradients = whole_gradients(ranks);
  for (const auto& [name, expected] : whole_gradients(one))
    EXPECT_LT(relative_distance(gradients.at(name), expected), kTolerance) << name;
}

class Divided : public ::testing::TestWithParam<ModelConfig> {};

TEST_P(Divided, UnitsComputeWhatOneRankComputesAndSayWhatTheyDeclare) {
  const std::vector<RankResult> one = run_units({.config = GetParam()});
  for (const UnitRun& run : divisions(GetParam())) expect_same_as_one_rank(run, one);
}

TEST_P(Divided, HalvesOfTheBackwardAndRecomputationChangeNothing) {
  const std::vector<RankResult> one = run_units({.config = GetParam()});
  for (UnitRun run : divisions(GetParam())) {
    if (run.tp == 4) continue;
    run.split = run.recompute = true;
    expect_same_as_one_rank(run, one);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Divided,
                         ::testing::Values(llama(1, false), llama(2, true), llama(4, false), llama(8, false),
                                           gpt2(true), gpt2(false), qwen2(2), qwen3(2), qwen3(8), gemma2(), gemma3(1),
                                           gemma3(4), with_all_biases(), without_windows(qwen3(2)),
                                           without_windows(gemma2())));

void expect_equal_bits(const UnitRun& a, const UnitRun& b) {
  SCOPED_TRACE(describe(b));
  const auto first = run_units(a), second = run_units(b);
  for (size_t r = 0; r < first.size(); ++r) {
    for (const std::string& error : second[r].traffic_errors) ADD_FAILURE() << error;
    EXPECT_EQ(first[r].loss, second[r].loss);
    for (size_t i = 0; i < first[r].boundaries.size(); ++i)
      EXPECT_TRUE(at::equal(first[r].boundaries[i], second[r].boundaries[i])) << i;
    for (const auto& [name, gradient] : first[r].gradients)
      EXPECT_TRUE(at::equal(gradient, second[r].gradients.at(name))) << name;
  }
}

TEST(SplitBackward, HasTheBitsOfTheWholeBackward) {
  for (const ModelConfig& config : {llama(2, false), gpt2(true), qwen2(2), gemma3(2)})
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16})
      for (const int tp : {1, 4}) {
        UnitRun whole{.config = config,
                      .precision = {dtype, dtype == at::kDouble ? at::kDouble : at::kFloat},
                      .tp = tp,
                      .sequence_parallel = tp > 1};
        UnitRun halves = whole;
        halves.split = true;
        expect_equal_bits(whole, halves);
      }
}

TEST(Recompute, OfAnyChoiceHasTheBitsOfNone) {
  const std::vector<std::vector<std::string>> choices = {{},
                                                         {"qkv"},
                                                         {"attended"},
                                                         {"mid"},
                                                         {"hidden"},
                                                         {"hidden", "qkv"},
                                                         {"attended", "hidden"},
                                                         {"qkv", "attended", "mid"},
                                                         {"mid", "hidden"},
                                                         {"mlp_out"},
                                                         {"qkv", "mlp_out"}};
  for (const ModelConfig& config : {llama(2, false), gpt2(true), without_windows(qwen3(2)), gemma3(2)})
    for (const auto& names : choices)
      for (const int tp : {1, 2}) {
        if (!config.post_norms && !names.empty() && names.back() == "mlp_out") continue;
        const UnitRun none{
            .config = config,
            .precision = {at::kBFloat16, at::kFloat},
            .tp = tp,
            .cp = tp,
            .sequence_parallel = tp > 1,
            .context = names.size() == 1 || config.sliding_window > 0 ? Context::ulysses : Context::ring};
        UnitRun some = none;
        some.recompute = true;
        some.recompute_names = names;
        expect_equal_bits(none, some);
      }
}

TEST(Recompute, NamesBringTheirStatisticsAndUnknownOnesAreRefused) {
  const Model model = build_model(gpt2(true), {});
  const Unit& block = *model.units[1];
  const BatchShape shape{1, 8};
  const auto saved = block.values(shape, {}).saved;
  const auto names = [&](const std::vector<std::string>& wanted) {
    std::vector<std::string> all;
    for (int i : recompute_set(block, shape, {}, wanted)) all.push_back(saved[i].name);
    return all;
  };
  EXPECT_EQ(names({"qkv"}), (std::vector<std::string>{"rstd1", "qkv", "mean1"}));
  EXPECT_EQ(names({"mid", "attended"}), (std::vector<std::string>{"rstd2", "attended", "lse", "mid", "mean2"}));
  EXPECT_EQ(names({}).size(), saved.size());
  EXPECT_TRUE(recompute_set(*model.units[0], shape, {}, {"qkv"}).empty());
  try {
    recompute_set(block, shape, {}, {"lse"});
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("qkv, attended, mid, hidden"));
  }
}

// What is summed over tensor-parallel ranks is made beside what lies there: twice the same micro-batch would show.
TEST(AddedGradients, LieOnTopOfWhatWasThere) {
  for (ModelConfig config : {llama(2, true), gpt2(true), qwen2(2), qwen3(2), gemma3(1), with_all_biases()}) {
    config.vocab_size = 60;  // divided by 2 and 4 no padding, which would not stay 0 below
    const auto truth = whole_gradients(run_units({.config = config}));
    std::vector<UnitRun> runs = divisions(config);
    runs.insert(runs.begin(), {.config = config});
    for (UnitRun run : runs)
      for (const bool split : {false, true}) {
        if (run.cp == 4) continue;
        run.adds = true;
        run.split = split;
        SCOPED_TRACE(describe(run));
        const std::vector<RankResult> ranks = run_units(run);
        for (const RankResult& rank : ranks)
          for (const std::string& error : rank.traffic_errors) ADD_FAILURE() << error;
        const auto found = whole_gradients(ranks);
        for (const auto& [name, expected] : truth)  // context-parallel ranks have each their own
          EXPECT_LT(relative_distance(found.at(name), expected + run.cp * run.found), kTolerance) << name;
      }
  }
}

// In bfloat16 with float32 sums a gradient is what would have been rounded, and ranks say what they declare.
TEST(AddedGradients, AreNotRoundedToTheComputeDtype) {
  for (const ModelConfig& config : {llama(2, false), gpt2(false), qwen3(4), with_all_biases()}) {
    const Precision rounds{at::kBFloat16, at::kFloat}, sums{at::kBFloat16, at::kFloat, true};
    const auto rounded = whole_gradients(run_units({.config = config, .precision = rounds}));
    const auto exact = whole_gradients(run_units({.config = config, .precision = sums}));
    for (const auto& [name, expected] : rounded)
      EXPECT_TRUE(at::equal(exact.at(name).to(at::kBFloat16), expected.to(at::kBFloat16))) << name;
    for (const bool sequence : {false, true}) {
      const UnitRun divided{.config = config, .precision = sums, .tp = 4, .sequence_parallel = sequence};
      SCOPED_TRACE(describe(divided));
      UnitRun added = divided;
      added.adds = true;
      added.found = 0;
      const std::vector<RankResult> ranks = run_units(divided);
      for (const RankResult& rank : ranks)
        for (const std::string& error : rank.traffic_errors) ADD_FAILURE() << error;
      const auto written = whole_gradients(ranks), onto_zero = whole_gradients(run_units(added));
      for (const auto& [name, expected] : written) {
        EXPECT_TRUE(at::equal(onto_zero.at(name), expected)) << name;
        // Partial sums are rounded elsewhere; what is counted twice or left out is off by half and more.
        EXPECT_LT(relative_distance(expected, exact.at(name)), 0.1) << name;
      }
    }
  }
}

TEST(DividedUnits, RanksThatHoldNothingButPaddingTakePart) {
  ModelConfig config = llama(8, true);
  config.vocab_size = 9;  // two rows a rank: the last three hold none
  const std::vector<RankResult> one = run_units({.config = config});
  for (const bool sequence : {false, true})
    expect_same_as_one_rank({.config = config, .tp = 8, .sequence_parallel = sequence}, one);
}

TEST(PaddedVocabulary, ComputesWhatOneWithoutPaddingComputes) {
  for (const ModelConfig& config : {llama(2, false), llama(2, true), gpt2(true), gemma2()}) {
    const std::vector<RankResult> one = run_units({.config = config});
    for (const int tp : {1, 2, 4}) expect_same_as_one_rank({.config = config, .tp = tp, .pads_vocabulary = true}, one);
    if (config.tie_word_embeddings) continue;
    const Adapters head{.modules = {{"lm_head", {.rank = 3, .scale = 2, .init = AdapterInit::random}}}};
    expect_same_as_one_rank({.config = config, .adapters = head, .pads_vocabulary = true},
                            run_units({.config = config, .adapters = head}));
  }
}

TEST(PaddedVocabulary, IsThatOfGpus) {
  ModelConfig config = llama(2, true);
  config.vocab_size = 50257;
  const auto size = [&](int tp, bool on_gpu) { return vocabulary_part(config, {.tp_size = tp}, on_gpu).size; };
  EXPECT_EQ(size(1, false), 50257);
  EXPECT_EQ(size(1, true), 50264);
  EXPECT_EQ(size(2, false), 25129);
  EXPECT_EQ(size(2, true), 25136);
  Precision precision{at::kBFloat16, at::kFloat};
  const auto table = [&] { return build_model(config, precision).units.front()->parameters().front(); };
  EXPECT_EQ(table().shape, (std::vector<int64_t>{50257, 32}));
  precision.on_gpu = true;
  EXPECT_EQ(table().shape, (std::vector<int64_t>{50264, 32}));
  EXPECT_EQ(table().whole_shape(), (std::vector<int64_t>{50257, 32}));
  config.vocab_size = 50304;
  EXPECT_TRUE(table().full_shape.empty());  // a plain parameter, and one pass over the logits
}

TEST(DividedUnits, AHeadThatWorksInChunksOfRowsAddsThemUp) {
  ModelConfig config = llama(2, false);
  config.vocab_size = 66001;  // so large that 300 rows of logits are two chunks on one rank as on two
  config.hidden_size = config.intermediate_size = 8;
  config.num_attention_heads = 2;
  config.num_hidden_layers = 1;
  config.max_position_embeddings = 300;
  const BatchShape shape{1, 300};
  const std::vector<RankResult> one = run_units({.config = config, .shape = shape});
  expect_same_as_one_rank({.config = config, .shape = shape, .tp = 2}, one);
  expect_same_as_one_rank({.config = config, .shape = shape, .tp = 2, .sequence_parallel = true}, one);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const Precision mixed{dtype, at::kFloat};
    const auto rounded = whole_gradients(run_units({.config = config, .precision = mixed, .shape = shape, .tp = 2}));
    EXPECT_LT(relative_distance(rounded.at("lm_head.weight"), whole_gradients(one).at("lm_head.weight")), 2e-2);
  }
}

// One rank has the logits in two chunks of rows, two ranks have theirs in one.
TEST(DividedUnits, AHeadsAdapterAddsUpChunksAndMasksTheirRows) {
  ModelConfig config = llama(2, false);
  config.vocab_size = 52000;
  config.hidden_size = config.intermediate_size = 8;
  config.num_attention_heads = 2;
  config.num_hidden_layers = 1;
  config.max_position_embeddings = 300;
  const BatchShape shape{1, 300};
  for (const AdapterSpec& spec : {AdapterSpec{.rank = 3, .scale = 2, .dropout = 0.25, .bias = true},
                                  AdapterSpec{.rank = 3, .scale = 2, .dropout = 0.25, .dora = true},
                                  AdapterSpec{.rank = 3, .scale = 2, .dora = true}}) {
    Adapters adapters{.modules = {{"lm_head", spec}, {"model.embed_tokens", spec}}};
    adapters.modules["model.embed_tokens"].dora = false;
    const std::vector<RankResult> one = run_units({.config = config, .shape = shape, .adapters = adapters});
    for (const bool sequence : {false, true}) {
      UnitRun run{.config = config, .shape = shape, .tp = 2, .sequence_parallel = sequence, .adapters = adapters};
      expect_same_as_one_rank(run, one);
      run.cp = 2;
      expect_same_as_one_rank(run, one);
      run.precision = {at::kBFloat16, at::kFloat};
      const auto rounded = whole_gradients(run_units(run));
      for (const auto& [name, expected] : whole_gradients(one))
        if (is_adapter(name)) EXPECT_LT(relative_distance(rounded.at(name), expected), 5e-2) << name;
    }
  }
}

// Rounding of a compute dtype stays of its size: no sum over ranks or blocks loses more. One rank in float64 is the
// truth; on several ranks the error may be twice that of one, which also rounds. Of a few elements' errors either may
// be small by luck: four times there.
TEST(DividedUnits, LowerPrecisionLosesNoMoreThanOnOneRank) {
  for (const ModelConfig& config : {llama(2, false), gpt2(true), qwen3(2), gemma3(4)})
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const auto truth = whole_gradients(run_units({.config = config}));
      const Precision precision{dtype, at::kFloat};
      const auto one = whole_gradients(run_units({.config = config, .precision = precision}));
      for (const Context context : {Context::ring, Context::ulysses}) {
        if (!takes(config, 2, context)) continue;
        const UnitRun run{
            .config = config, .precision = precision, .tp = 2, .cp = 2, .sequence_parallel = true, .context = context};
        SCOPED_TRACE(describe(run));
        const auto several = whole_gradients(run_units(run));
        for (const auto& [name, expected] : truth)
          EXPECT_LT(relative_distance(several.at(name), expected),
                    (expected.numel() < 64 ? 4 : 2) * relative_distance(one.at(name), expected))
              << name;
      }
    }
}

TEST(OneRank, SaysNothing) {
  const Model model = build_model(llama(2, false), {});
  for (const auto& unit : model.units) {
    const UnitTraffic t = unit->traffic({2, 16}, {});
    EXPECT_TRUE(t.forward.empty() && t.recompute.empty() && t.backward.empty() && t.backward_input.empty() &&
                t.backward_weight.empty())
        << unit->name();
  }
}

std::string refusal(const ModelConfig& config, const Parallel& parallel) {
  try {
    const Model model = build_model(config, {}, parallel);
    model.units[1]->values({1, 18}, {});
  } catch (const UsageError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Divisions, ThatDoNotDivideAreRefusedWithTheWayOut) {
  EXPECT_THAT(refusal(llama(4, false), {.tp_size = 3}),
              HasSubstr("mesh.tp=3 does not divide model.num_attention_heads=8; use mesh.tp in {1, 2, 4, 8}"));
  ModelConfig c = llama(4, false);
  c.intermediate_size = 49;
  EXPECT_THAT(refusal(c, {.tp_size = 2}), HasSubstr("model.intermediate_size=49; use mesh.tp in {1, 7, 49}"));
  c = llama(4, false);
  c.num_attention_heads = 12;
  c.num_key_value_heads = 3;
  EXPECT_THAT(refusal(c, {.tp_size = 2}), HasSubstr("num_key_value_heads=3"));
  c = llama(2, false);
  set_architecture(c, Architecture::olmo2);
  EXPECT_THAT(refusal(c, {.tp_size = 4}),
              HasSubstr("mesh.tp=4 does not divide model.num_key_value_heads=2; use mesh.tp in {1, 2}, because ranks "
                        "cannot share a key/value head: the norm over all heads"));
  c = llama(2, false);
  set_architecture(c, Architecture::phi3);
  EXPECT_THAT(refusal(c, {.tp_size = 4}), HasSubstr("use mesh.tp in {1, 2}, because ranks cannot share a key/value "
                                                    "head that is in one matrix with the queries"));
  EXPECT_THAT(refusal(llama(8, false), {.tp_size = 4, .cp_size = 4, .context = Context::ulysses}),
              HasSubstr("2 query heads"));
  EXPECT_THAT(refusal(llama(8, false), {.cp_size = 2}), HasSubstr("use a sequence of 16 or 20 tokens"));
  EXPECT_THAT(refusal(llama(8, false), {.tp_size = 4, .sequence_parallel = true}), HasSubstr("18 tokens"));
}

}  // namespace
}  // namespace trireme::model
