// Adapters on matrices in few bits: the losses and gradients are those of the values that the codes stand for, and the
// same on every mesh.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support.h"
#include "trireme/base/error.h"
#include "trireme/model/initialize.h"
#include "trireme/model/quantized.h"
#include "trireme/ops/blocks/quantize.h"
#include "trireme/ops/products/kernels.h"
#include "trireme/ops/products/products.h"

namespace trireme::engine {
namespace {

using base::BlockFormat;
using plan::Strategy;

model::ModelConfig quantized_model(const std::string& family, BlockFormat format) {
  model::ModelConfig config = small_model(family);
  config.quantized = format;
  if (base::traits_of(format).in_rows()) config.hidden_size = 64, config.intermediate_size = 128;
  return config;
}

/// Adapters on all matrices of all blocks.
model::Adapters adapters_on(model::ModelConfig config, double dropout, bool dora = false) {
  config.quantized = BlockFormat::none;
  model::Adapters adapters;
  for (const auto& unit : model::build_model(config, kFloat64).units)
    for (const model::ParameterSpec& p : unit->parameters())
      if (p.name.find("layers.") != std::string::npos && p.whole_shape().size() == 2)
        adapters.modules[model::module_of(p.name)] = {
            .rank = 4, .scale = 2, .dropout = dropout, .dora = dora, .init = model::AdapterInit::random};
  return adapters;
}

Job quantized_job(const std::string& family, BlockFormat format, const model::Precision& precision,
                  double dropout = 0) {
  Job job{.model = quantized_model(family, format), .precision = precision, .steps = 3};
  job.adapters = adapters_on(job.model, dropout);
  job.ragged = job.poison = true;
  return job;
}

/// The values that a whole matrix's codes stand for.
at::Tensor dequantized(const model::ParameterSpec& p, BlockFormat format) {
  at::Tensor values = at::empty({p.numel()});
  model::initialize_held(values.data_ptr<float>(), p, 42, 0, p.numel());
  ops::Quantizer quantizer(format, p.numel());
  quantizer.add(0, p.numel(), values.data_ptr<float>());
  ops::dequantize(quantizer.finish(), 0, p.numel(), values.data_ptr<float>());
  return values.view(p.shape).to(at::kDouble);
}

/// Of all matrices of a job that have adapters.
std::map<std::string, at::Tensor> values_of(const Job& job, BlockFormat format) {
  std::map<std::string, at::Tensor> values;
  for (const auto& unit : model::build_model(job.model, kFloat64).units)
    for (const model::ParameterSpec& p : unit->parameters())
      if (job.adapters.modules.contains(model::module_of(p.name)) && p.whole_shape().size() == 2) {
        model::ParameterSpec whole = p;
        whole.pieces.clear(), whole.split_dim = -1, whole.full_shape.clear();
        values[p.name] = dequantized(whole, format);
      }
  return values;
}

struct QuantizedCase {
  const char* family;
  BlockFormat format;
};
const QuantizedCase kCases[] = {{"llama", BlockFormat::nf4_nested}, {"llama", BlockFormat::fp4},
                                {"qwen3", BlockFormat::nf4},        {"phi3", BlockFormat::nf4_nested},
                                {"gpt_neox", BlockFormat::nf4},     {"granite", BlockFormat::fp4_nested},
                                {"llama", BlockFormat::q8_0},       {"qwen3", BlockFormat::q4_0}};

class InFourBits : public testing::TestWithParam<int> {
 protected:
  Job job(const model::Precision& precision, double dropout = 0) const {
    return quantized_job(kCases[GetParam()].family, kCases[GetParam()].format, precision, dropout);
  }
};

/// Whether whole numbers times their scales stay unrounded (ops::multiply_blocks), so that dense bfloat16 differs.
bool is_exacter_than_values(BlockFormat format, const model::Precision& precision) {
  const auto kernels = ops::gemm_kernels(precision.compute);
  return (format == BlockFormat::q8_0 || format == BlockFormat::q4_0) && precision.compute == at::kBFloat16 &&
         !kernels.empty() && kernels.front()->k_multiple == 1;
}

TEST_P(InFourBits, LossesAndGradientsAreThoseOfTheValues) {
  Outcome in_float32;
  for (const model::Precision& precision : {kFloat64, kFloat32, kMixed}) {
    Job in_bits = job(precision);
    in_bits.steps = 1;
    Job dense = in_bits;
    dense.model.quantized = BlockFormat::none;
    dense.weights = values_of(dense, kCases[GetParam()].format);
    const Outcome few = run(in_bits), all = run(dense);
    const bool exact = precision.compute == at::kDouble;
    if (precision.compute == at::kFloat) in_float32 = few;
    if (is_exacter_than_values(kCases[GetParam()].format, precision)) {
      EXPECT_NEAR(few.losses[0], in_float32.losses[0], 1e-3);
      EXPECT_LE(relative_distance(few.gradients, in_float32.gradients),
                1.2 * relative_distance(all.gradients, in_float32.gradients));
    } else {
      EXPECT_NEAR(few.losses[0], all.losses[0], exact ? 1e-12 : 1e-6);
      EXPECT_LE(relative_distance(few.gradients, all.gradients), exact ? 1e-11 : 1e-6);
    }
    EXPECT_EQ(few.planned, few.allocated);
    EXPECT_LT(few.planned[0], all.planned[0]);
  }
}

TEST_P(InFourBits, MagnitudesAreThoseOfTheValues) {
  for (const double dropout : {0.0, 0.25}) {
    Job in_bits = job(kFloat64);
    in_bits.adapters = adapters_on(in_bits.model, dropout, true);
    in_bits.steps = 2;
    Job dense = in_bits;
    dense.model.quantized = BlockFormat::none;
    dense.weights = values_of(dense, kCases[GetParam()].format);
    const Outcome few = run(in_bits), all = run(dense);
    EXPECT_NEAR(few.losses[1], all.losses[1], 1e-11);
    EXPECT_LE(relative_distance(few.gradients, all.gradients), 1e-10);
    in_bits.mesh = {.shard = 2}, in_bits.strategy = Strategy::full_shard;
    EXPECT_EQ(run(in_bits).losses, few.losses);
    if (in_bits.model.num_attention_heads % 2 != 0) continue;
    in_bits.mesh = {.shard = 1, .tp = 2};
    EXPECT_NEAR(run(in_bits).losses[1], few.losses[1], 1e-10);
  }
}

TEST_P(InFourBits, DataRanksGiveTheBitsOfOneRank) {
  for (const model::Precision& precision : {kFloat32, kMixed, kHalfMixed}) {
    const Job one_rank = job(precision, 0.25);
    const Outcome one = run(one_rank);
    const auto expect_equal = [&](const comm::MeshSizes& mesh, Strategy strategy,
                                  const std::string& backend = "threads") {
      Job many_ranks = one_rank;
      many_ranks.mesh = mesh, many_ranks.strategy = strategy, many_ranks.backend = backend;
      const Outcome many = run(many_ranks);
      EXPECT_EQ(many.losses, one.losses) << mesh.shard << mesh.replicate << backend;
      EXPECT_TRUE(at::equal(many.parameters, one.parameters));
      EXPECT_EQ(many.planned, many.allocated);
    };
    expect_equal({.shard = 2}, Strategy::no_shard);
    expect_equal({.shard = 2}, Strategy::full_shard);
    expect_equal({.shard = 3}, Strategy::shard_grad_op);
    expect_equal({.shard = 4}, Strategy::full_shard);
    expect_equal({.shard = 2}, Strategy::full_shard, "gloo");
    expect_equal({.replicate = 2, .shard = 2}, Strategy::hybrid_shard);
    Job again = one_rank;
    again.recompute.mode = schedule::Recompute::full;
    EXPECT_EQ(run(again).losses, one.losses);
  }
}

TEST_P(InFourBits, TensorAndPipelineRanksAreWithinRounding) {
  for (const model::Precision& precision : {kFloat64, kFloat32}) {
    const Job one_rank = job(precision, 0.25);
    const Outcome one = run(one_rank);
    for (const comm::MeshSizes& mesh : {comm::MeshSizes{.shard = 1, .tp = 2},
                                        {.pp = 2, .shard = 1},
                                        {.pp = 2, .shard = 2},
                                        {.shard = 2, .tp = 2},
                                        {.shard = 1, .cp = 2}}) {
      if (one_rank.model.num_attention_heads % mesh.tp != 0) continue;
      Job many_ranks = one_rank;
      many_ranks.mesh = mesh, many_ranks.strategy = Strategy::full_shard;
      many_ranks.context = model::Context::ulysses;
      const Outcome many = run(many_ranks);
      for (size_t step = 0; step < one.losses.size(); ++step)
        EXPECT_NEAR(many.losses[step], one.losses[step], precision.compute == at::kDouble ? 1e-10 : 2e-6);
      EXPECT_EQ(many.planned, many.allocated);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Engine, InFourBits, testing::Range(0, static_cast<int>(std::size(kCases))));

std::string refusal(const Job& job) try {
  run(job);
  return "";
} catch (const UsageError& error) {
  return error.what();
}

TEST(InFourBits, RefusesWhatItCannotDo) {
  Job job = quantized_job("llama", BlockFormat::nf4, kFloat32);
  job.adapters = {};
  EXPECT_EQ(
      refusal(job),
      "quantize bnb.nf4: weights in 4 bits cannot be trained; train adapters beside them with trireme finetune_lora "
      "or lora.r, or take the model with all its bits");
  job = quantized_job("llama", BlockFormat::nf4, kFloat32);
  job.adapters.whole = {"model.layers.1.mlp.up_proj"};
  EXPECT_NE(refusal(job).find("lora.modules_to_save"), std::string::npos) << refusal(job);
  job = quantized_job("llama", BlockFormat::nf4, kFloat32);
  job.model.intermediate_size = 82;
  job.mesh = {.shard = 1, .tp = 2};
  EXPECT_NE(refusal(job).find("inside a byte"), std::string::npos) << refusal(job);
  job = quantized_job("llama", BlockFormat::q8_0, kFloat32);
  job.model.intermediate_size = 80;
  EXPECT_EQ(refusal(job),
            "quantize q8_0: model.layers.0.mlp.down_proj.weight has rows of 80 elements, and a block holds 32 of one "
            "row; take a format of bitsandbytes such as bnb.nf4, or leave quantize out");
  job.model.intermediate_size = 96;
  job.mesh = {.shard = 1, .tp = 2};
  EXPECT_EQ(refusal(job),
            "quantize q8_0: model.layers.0.mlp.down_proj.weight would be cut before its column 48, inside a block, "
            "which holds 32 elements; use a mesh.tp that leaves each rank a multiple of 32 columns");
  job = Job{.model = quantized_model("gpt2", BlockFormat::nf4), .precision = kFloat32};
  EXPECT_NE(refusal(job).find("leave quantize out"), std::string::npos) << refusal(job);
}

}  // namespace
}  // namespace trireme::engine
