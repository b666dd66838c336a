// Low-rank adapters: their losses are those of the merged weights, their gradients follow from the merged weights'
// gradients by the chain rule, and they are the same on every mesh.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "support.h"

namespace trireme::engine {
namespace {

using plan::Strategy;

bool is_embedding(const std::string& module) { return module.ends_with("embed_tokens") || module.ends_with("wte"); }
// PEFT's names of an adapter's parameters.
const char* name_of_a(const std::string& module) {
  return is_embedding(module) ? model::kLoraEmbeddingA : model::kLoraA;
}
const char* name_of_b(const std::string& module) {
  return is_embedding(module) ? model::kLoraEmbeddingB : model::kLoraB;
}

// Adapters on the modules of all blocks whose names end in one of `ends`; every second one has another rank.
model::Adapters adapters_on(const model::ModelConfig& config, const std::vector<std::string>& ends,
                            const model::AdapterSpec& spec) {
  model::Adapters adapters;
  const model::Model model = model::build_model(config, kFloat64);
  int number = 0;
  for (const model::ParameterGroup& g : model.groups)
    for (const model::ParameterSpec& p : g.parameters) {
      const std::string module = model::module_of(p.name);
      for (const std::string& end : ends)
        if (module.ends_with(end) && p.name.ends_with(".weight")) {
          adapters.modules[module] = spec;
          if (++number % 2 == 0) adapters.modules[module].rank = spec.rank + 2;
        }
    }
  // A tied head has no parameter of its own.
  if (std::ranges::find(ends, "lm_head") != ends.end()) adapters.modules["lm_head"] = spec;
  for (auto& [module, adapter] : adapters.modules)
    if (is_embedding(module)) adapter.dora = adapter.bias = false;
  return adapters;
}

struct AdaptedCase {
  const char* family;
  std::vector<std::string> ends;
};
const AdaptedCase kAdaptedCases[] = {
    {"llama", {"q_proj", "v_proj"}},
    {"llama", {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}},
    {"qwen3", {"k_proj", "o_proj", "up_proj"}},
    {"gemma3", {"q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"}},
    {"gpt2", {"c_attn", "c_proj", "c_fc"}},
    {"llama", {"q_proj", "lm_head", "embed_tokens"}},
    {"gemma3", {"v_proj", "lm_head", "embed_tokens"}},
    {"gpt2", {"c_attn", "lm_head", "wte"}},
};

/// What adapters may have beside A and B.
struct Variant {
  double dropout = 0;
  bool dora = false, bias = false;
};
const Variant kVariants[] = {{}, {.dropout = 0.25, .bias = true}, {.dora = true}, {.dropout = 0.25, .dora = true}};
std::ostream& operator<<(std::ostream& out, const Variant& v) {
  return out << "dropout " << v.dropout << ", dora " << v.dora << ", bias " << v.bias;
}

Job adapted_job(const AdaptedCase& c, const model::Precision& precision, const Variant& variant = {}) {
  Job job{.model = small_model(c.family), .precision = precision, .steps = 3};
  job.adapters = adapters_on(job.model, c.ends,
                             {.rank = 4,
                              .scale = 2,
                              .dropout = variant.dropout,
                              .dora = variant.dora,
                              .bias = variant.bias,
                              .init = model::AdapterInit::random,
                              .rate_of_b = 3});
  job.ragged = job.poison = true;
  return job;
}

class Adapted : public testing::TestWithParam<int> {
 protected:
  const AdaptedCase& tested() const { return kAdaptedCases[GetParam()]; }
};

TEST_P(Adapted, LossAndGradientsAreThoseOfMergedWeights) {
  Job job = adapted_job(tested(), kFloat64);
  job.steps = 1;
  Job still = job;
  still.optimizer.lr = 0;
  const Outcome adapted = run(job), before = run(still);
  Job merged = job;
  merged.adapters = {};
  const bool gpt2 = std::string(tested().family) == "gpt2";
  const std::string table = gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight";
  const auto matrix_of = [&](const std::string& module) {
    return module == "lm_head" && job.model.tie_word_embeddings ? table : module + ".weight";
  };
  if (job.model.tie_word_embeddings && job.adapters.modules.contains("lm_head")) {
    merged.model.tie_word_embeddings = false;  // each adapter belongs to one of the two
    for (const std::string& name : {table, std::string("lm_head.weight")})
      merged.weights[name] = before.parameter.at(table).view({job.model.vocab_size, job.model.hidden_size});
  }
  struct Pair {
    at::Tensor a, b;
    double scale;
    bool transposed;
  };
  std::map<std::string, Pair> pairs;
  for (const auto& [module, spec] : job.adapters.modules) {
    const at::Tensor a = before.parameter.at(module + name_of_a(module)).view({spec.rank, -1}),
                     b = before.parameter.at(module + name_of_b(module)).view({-1, spec.rank});
    const bool transposed = is_embedding(module) || (gpt2 && module != "lm_head");
    pairs[module] = {a, b, spec.scale, transposed};
    at::Tensor delta = spec.scale * b.mm(a);
    if (transposed) delta = delta.t().contiguous();
    merged.weights[module + ".weight"] = before.parameter.at(matrix_of(module)).view(delta.sizes()) + delta;
  }
  const Outcome whole = run(merged);
  EXPECT_NEAR(adapted.losses[0], whole.losses[0], 1e-12);
  EXPECT_EQ(adapted.gradient.size(), 2 * pairs.size());
  for (const auto& [module, p] : pairs) {
    at::Tensor dw = whole.gradient.at(module + ".weight").view(merged.weights.at(module + ".weight").sizes());
    if (p.transposed) dw = dw.t();
    EXPECT_LE(relative_distance(adapted.gradient.at(module + name_of_a(module)), (p.scale * p.b.t().mm(dw)).flatten()),
              1e-11)
        << module;
    EXPECT_LE(relative_distance(adapted.gradient.at(module + name_of_b(module)), (p.scale * dw.mm(p.a.t())).flatten()),
              1e-11)
        << module;
  }
  for (const auto& [name, parameter] : adapted.parameter)
    EXPECT_EQ(at::equal(parameter, before.parameter.at(name)), !model::is_adapter(name)) << name;
  EXPECT_EQ(adapted.planned, adapted.allocated);
  EXPECT_LT(adapted.planned[0], whole.planned[0]);
}

// TRIREME_SLOW=1: every precision with every variant. Otherwise two of the twelve for each family and place of
// adapters, so that the eight meet all of them.
TEST_P(Adapted, DataRanksGiveTheBitsOfOneRank) {
  int number = 0;
  for (const model::Precision& precision : {kFloat32, kMixed, kHalfMixed}) {
    for (const Variant& variant : kVariants) {
      if (number++ % 6 != GetParam() % 6 && std::getenv("TRIREME_SLOW") == nullptr) continue;
      SCOPED_TRACE(testing::Message() << variant);
      Job job = adapted_job(tested(), precision, variant);
      const Outcome one = run(job);
      const auto expect_equal = [&](const Outcome& many) {
        EXPECT_EQ(many.losses, one.losses);
        EXPECT_EQ(many.norms, one.norms);
        EXPECT_EQ(many.evaluation, one.evaluation);
        EXPECT_TRUE(at::equal(many.parameters, one.parameters));
        EXPECT_TRUE(at::equal(many.gradients, one.gradients));
        EXPECT_EQ(many.planned, many.allocated);
      };
      for (const auto mode : {schedule::Recompute::full, schedule::Recompute::selective}) {
        Job again = job;
        again.recompute.mode = mode;
        expect_equal(run(again));
      }
      for (const Strategy strategy :
           {Strategy::no_shard, Strategy::zero1, Strategy::shard_grad_op, Strategy::full_shard}) {
        job.strategy = strategy;
        job.mesh = {.shard = 2};
        expect_equal(run(job));
      }
      job.mesh = {.replicate = 2, .shard = 2};
      expect_equal(run(job));
    }
  }
}

TEST_P(Adapted, EveryMeshGivesOneRanksResult) {
  for (const Variant& variant : kVariants) {
    const Job job = adapted_job(tested(), kFloat64, variant);
    const Outcome one = run(job);
    std::vector<Job> divisions;
    const auto add = [&](const comm::MeshSizes& mesh) -> Job& {
      divisions.push_back(job);
      divisions.back().mesh = mesh;
      return divisions.back();
    };
    for (const char* schedule : {"1f1b", "zb_h1", "zb_v"}) add({.pp = 2, .shard = 1}).pipeline.schedule = schedule;
    add({.pp = 2, .shard = 2}).strategy = Strategy::full_shard;
    for (const Strategy strategy : {Strategy::no_shard, Strategy::full_shard}) {
      Job& context = add({.shard = 1, .cp = 2});
      context.strategy = strategy;
      if (job.model.sliding_window > 0) context.context = model::Context::ulysses;
    }
    if (tested().family != std::string("gpt2")) {
      for (const bool sequence_parallel : {false, true}) {
        add({.shard = 1, .tp = 2}).sequence_parallel = sequence_parallel;
        Job& both = add({.pp = 2, .shard = 1, .tp = 2});
        both.sequence_parallel = sequence_parallel;
        both.pipeline.schedule = "zb_h1";
      }
    }
    Job& local = add({.shard = 2});
    local.ordered = false;
    local.local_accumulation = true;
    local.strategy = Strategy::shard_grad_op;
    for (const Job& division : divisions) {
      SCOPED_TRACE(testing::Message() << "pp " << division.mesh.pp << ' ' << division.pipeline.schedule << ", tp "
                                      << division.mesh.tp << ", sp " << division.sequence_parallel << ", cp "
                                      << division.mesh.cp << ", local " << division.local_accumulation << ", "
                                      << variant);
      const Outcome many = run(division);
      EXPECT_LE(relative_distance(many.gradients, one.gradients), 1e-10);
      EXPECT_LE(relative_distance(many.parameters, one.parameters), 1e-10);
      EXPECT_NEAR(many.norms[0] / one.norms[0], 1, 1e-10);
      EXPECT_NEAR(many.evaluation, one.evaluation, 1e-10);
      EXPECT_EQ(many.planned, many.allocated);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Adapted, testing::Range(0, static_cast<int>(std::size(kAdaptedCases))));

TEST(AdapterDropout, ChangesEveryStepAndNothingInEvaluation) {
  const Job job = adapted_job(kAdaptedCases[0], kFloat64),
            dropped = adapted_job(kAdaptedCases[0], kFloat64, {.dropout = 0.25});
  Job still = job, still_dropped = dropped;
  still.optimizer.lr = still_dropped.optimizer.lr = 0;
  const Outcome plain = run(still), masked = run(still_dropped);
  EXPECT_EQ(plain.evaluation, masked.evaluation);
  for (size_t i = 0; i < plain.losses.size(); ++i) EXPECT_NE(plain.losses[i], masked.losses[i]);
}

TEST(AdapterMagnitudes, AnOutputWithoutWeightsIsZeroAndNoNaN) {
  Job job{.model = small_model("llama"), .precision = kFloat64, .steps = 2};
  job.adapters = adapters_on(job.model, {"q_proj"}, {.rank = 4, .dora = true});
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  job.weights[name] =
      at::zeros({job.model.num_attention_heads * job.model.head_dim, job.model.hidden_size}, at::kDouble);
  for (const double loss : run(job).losses) EXPECT_TRUE(std::isfinite(loss));
}

TEST(WholeModules, AreTrainedBesideAdapters) {
  Job job = adapted_job(kAdaptedCases[0], kFloat32);
  job.adapters.whole = {"model.norm", "lm_head"};
  Job still = job;
  still.optimizer.lr = 0;
  const Outcome after = run(job), before = run(still);
  for (const auto& [name, parameter] : after.parameter)
    EXPECT_EQ(at::equal(parameter, before.parameter.at(name)),
              !model::is_adapter(name) && name != "model.norm.weight" && name != "lm_head.weight")
        << name;
}

// A tied matrix that is trained whole becomes two: the head's, and the embedding's.
TEST(WholeModules, OfTiedMatricesAreTrainedApart) {
  for (const std::string whole : {"lm_head", "model.embed_tokens"}) {
    Job job = adapted_job({"gemma3", {"v_proj"}}, kFloat64);
    job.adapters.whole = {whole};
    Job still = job;
    still.optimizer.lr = 0;
    const Outcome after = run(job), before = run(still);
    for (const std::string module : {"lm_head", "model.embed_tokens"})
      EXPECT_EQ(at::equal(after.parameter.at(module + ".weight"), before.parameter.at(module + ".weight")),
                module != whole);
    Job many = job;
    for (const comm::MeshSizes& mesh : {comm::MeshSizes{.shard = 1, .tp = 2}, comm::MeshSizes{.pp = 2, .shard = 1}}) {
      many.mesh = mesh;
      EXPECT_LE(relative_distance(run(many).parameters, after.parameters), 1e-10);
    }
    many.mesh = {.shard = 2};
    many.strategy = Strategy::full_shard;
    EXPECT_TRUE(at::equal(run(many).parameters, after.parameters));
  }
}

}  // namespace
}  // namespace trireme::engine
