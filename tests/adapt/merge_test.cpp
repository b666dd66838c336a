#include "trireme/adapt/merge.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "../checkpoint/fixtures.h"
#include "folders.h"
#include "trireme/adapt/base_fingerprint.h"
#include "trireme/adapt/open_model.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"

namespace trireme::adapt {
namespace {

using checkpoint::Checkpoint;
using checkpoint::Dtype;
using model::Architecture;

at::Tensor read_all(const Checkpoint& c, const std::string& name) {
  const checkpoint::StoredTensor& stored = c.tensor(name);
  const at::Tensor values = at::empty(stored.shape, at::kDouble);
  checkpoint::read_piece(c, {name, 0, stored.elements, values.data_ptr(), Dtype::f64});
  return values;
}

/// The merged weight of a module in float64, by the formula.
at::Tensor merged(const at::Tensor& weight, const Tensors& adapter, const std::string& module, double scale,
                  bool transposed) {
  const bool embedding = adapter.contains(module + ".lora_embedding_A");
  const at::Tensor a = adapter.at(module + (embedding ? ".lora_embedding_A" : ".lora_A.weight")).to(at::kDouble),
                   b = adapter.at(module + (embedding ? ".lora_embedding_B" : ".lora_B.weight")).to(at::kDouble);
  at::Tensor out_in = (transposed ? weight.to(at::kDouble).t() : weight.to(at::kDouble)) + at::mm(b, a) * scale;
  if (const auto m = adapter.find(module + ".lora_magnitude_vector"); m != adapter.end())
    out_in = out_in * (m->second.to(at::kDouble) / out_in.square().sum(1).sqrt()).unsqueeze(1);
  return transposed ? out_in.t() : out_in;
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>() / b.abs().max().item<double>();
}

struct MergeTest : testing::Test {
  checkpoint::ScratchFolder scratch;
  std::filesystem::path base = scratch / "base", adapter = scratch / "adapter";
};

TEST_F(MergeTest, EachKindOfMatrixIsMergedByTheFormula) {
  at::manual_seed(1);
  for (const Architecture architecture : {Architecture::llama, Architecture::gpt2})
    for (const bool dora : {false, true}) {
      const bool gpt2 = architecture == Architecture::gpt2;
      const model::ModelConfig model = small_model(architecture);
      const AdapterConfig config{
          .r = 3,
          .lora_alpha = 5,
          .use_dora = dora,
          .target_modules = {.list = gpt2
                                         ? std::vector<std::string>{"c_attn", "mlp.c_proj", "wpe"}
                                         : std::vector<std::string>{"q_proj", "down_proj", "embed_tokens", "lm_head"}}};
      const Tensors weights = write_model(base, model), factors = write_adapter(adapter, config, model);
      const Checkpoint c = with_adapter(checkpoint::open_checkpoint(base), open_adapter_folder(adapter));
      const std::string block = gpt2 ? "transformer.h.1." : "model.layers.1.";
      const std::vector<std::string> adapted =
          gpt2 ? std::vector<std::string>{block + "attn.c_attn", block + "mlp.c_proj", "transformer.wpe"}
               : std::vector<std::string>{block + "self_attn.q_proj", block + "mlp.down_proj", "model.embed_tokens",
                                          "lm_head"};
      for (const std::string& name : adapted) {
        const bool transposed = gpt2 || name == "model.embed_tokens";
        EXPECT_LT(distance(read_all(c, name + ".weight"),
                           merged(weights.at(name + ".weight"), factors, name, 5.0 / 3, transposed)),
                  1e-14)
            << name;
        const at::Tensor narrow = at::empty(weights.at(name + ".weight").sizes(), at::kFloat);
        checkpoint::read_piece(c, {name + ".weight", 0, narrow.numel(), narrow.data_ptr(), Dtype::f32});
        EXPECT_LT(distance(narrow.to(at::kDouble), read_all(c, name + ".weight")), 3e-6) << name;
      }
      const std::string untouched = gpt2 ? block + "mlp.c_fc.weight" : block + "self_attn.k_proj.weight";
      EXPECT_TRUE(at::equal(read_all(c, untouched), weights.at(untouched).to(at::kDouble)));
    }
}

TEST_F(MergeTest, EveryPieceOfATensorIsThatOfTheWhole) {
  const model::ModelConfig model = small_model(Architecture::llama);
  write_model(base, model);
  write_adapter(adapter, {.r = 2, .use_dora = true}, model);
  const Checkpoint c = with_adapter(checkpoint::open_checkpoint(base), open_adapter_folder(adapter));
  const std::string name = "model.layers.2.self_attn.q_proj.weight";
  const at::Tensor whole = read_all(c, name).flatten();
  for (int64_t begin = 0; begin < whole.numel(); begin += 7)
    for (const int64_t count : {1, 5, 16, 40, 90}) {
      const int64_t end = std::min(begin + count, whole.numel());
      const at::Tensor piece = at::empty({end - begin}, at::kDouble);
      checkpoint::read_pieces(c,
                              std::vector<checkpoint::PieceRequest>{{name, begin, end, piece.data_ptr(), Dtype::f64}});
      ASSERT_LT((piece - whole.narrow(0, begin, end - begin)).abs().max().item<double>(), 1e-14) << begin;
    }
}

TEST_F(MergeTest, ValuesAreRoundedOnceToTheMemorysDtype) {
  const model::ModelConfig model = small_model(Architecture::llama, 1);
  write_model(base, model, at::kBFloat16);
  write_adapter(adapter, {.r = 2}, model);
  const Checkpoint c = with_adapter(checkpoint::open_checkpoint(base), open_adapter_folder(adapter));
  const std::string name = "model.layers.0.self_attn.v_proj.weight";
  const at::Tensor wide = at::empty({8, 16}, at::kFloat), narrow = at::empty({8, 16}, at::kBFloat16);
  checkpoint::read_piece(c, {name, 0, 128, wide.data_ptr(), Dtype::f32});
  checkpoint::read_piece(c, {name, 0, 128, narrow.data_ptr(), Dtype::bf16});
  EXPECT_TRUE(at::equal(wide.to(at::kBFloat16), narrow));
}

TEST_F(MergeTest, SavedModulesReplaceTheBases) {
  const model::ModelConfig model = small_model(Architecture::gpt2);
  const Tensors weights = write_model(base, model);
  const Tensors tensors = write_adapter(adapter, {.modules_to_save = {"ln_f", "1.mlp"}}, model);
  const Checkpoint c = with_adapter(checkpoint::open_checkpoint(base), open_adapter_folder(adapter));
  for (const char* name : {"transformer.ln_f.weight", "transformer.ln_f.bias", "transformer.h.1.mlp.c_fc.weight",
                           "transformer.h.1.mlp.c_proj.bias"})
    EXPECT_TRUE(at::equal(read_all(c, name), tensors.at(name).to(at::kDouble))) << name;
  EXPECT_TRUE(at::equal(read_all(c, "transformer.h.0.mlp.c_fc.weight"),
                        weights.at("transformer.h.0.mlp.c_fc.weight").to(at::kDouble)));
}

TEST_F(MergeTest, ABiasOfBIsAddedWhereTheModelHasOne) {
  const model::ModelConfig gpt2 = small_model(Architecture::gpt2, 1), llama = small_model(Architecture::llama, 1);
  const AdapterConfig config{.r = 2, .lora_alpha = 3, .lora_bias = true};
  const Tensors weights = write_model(base, gpt2), tensors = write_adapter(adapter, config, gpt2);
  const Checkpoint c = with_adapter(checkpoint::open_checkpoint(base), open_adapter_folder(adapter));
  const std::string module = "transformer.h.0.attn.c_attn";
  EXPECT_LT(distance(read_all(c, module + ".bias"), weights.at(module + ".bias").to(at::kDouble) +
                                                        1.5 * tensors.at(module + ".lora_B.bias").to(at::kDouble)),
            1e-15);
  write_model(base, llama);
  write_adapter(adapter, config, llama);
  EXPECT_THROW(with_adapter(checkpoint::open_checkpoint(base), open_adapter_folder(adapter)), CheckpointError);
}

TEST_F(MergeTest, AnAdapterOfATiedMatrixBelongsToItAlone) {
  model::ModelConfig model = small_model(Architecture::llama);
  model.tie_word_embeddings = true;
  const Tensors weights = write_model(base, model);
  const at::Tensor table = weights.at("model.embed_tokens.weight").to(at::kDouble);
  for (const char* target : {"lm_head", "embed_tokens"}) {
    const Tensors tensors =
        write_adapter(adapter, {.r = 2, .lora_alpha = 2, .target_modules = {.list = {target}}}, model);
    std::vector<std::string> notes;
    const Checkpoint c = with_adapter(checkpoint::open_checkpoint(base), open_adapter_folder(adapter), &notes);
    EXPECT_EQ(notes.size(), 1);
    const bool head = std::string(target) == "lm_head";
    const at::Tensor changed = merged(table, tensors, head ? "lm_head" : "model.embed_tokens", 1, !head);
    EXPECT_LT(distance(read_all(c, "lm_head.weight"), head ? changed : table), 1e-14);
    EXPECT_LT(distance(read_all(c, "model.embed_tokens.weight"), head ? table : changed), 1e-14);
    EXPECT_EQ(nlohmann::json::parse(checkpoint::read_text(c, "config.json"))["tie_word_embeddings"], false);
  }
}

TEST_F(MergeTest, ABaseThatChangedSinceIsRefused) {
  const model::ModelConfig model = small_model(Architecture::llama);
  Tensors weights = write_model(base, model);
  write_adapter(adapter, {}, model);
  AdapterFolder folder = open_adapter_folder(adapter);
  folder.base_fingerprint = fingerprint_of(checkpoint::open_checkpoint(base));
  EXPECT_NO_THROW(with_adapter(checkpoint::open_checkpoint(base), folder));
  weights["model.norm.weight"][3] += 1;
  write_safetensors(base / "model.safetensors", weights);
  try {
    with_adapter(checkpoint::open_checkpoint(base), folder);
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_NE(std::string(error.what()).find("is not the one that the adapter"), std::string::npos) << error.what();
  }
}

TEST_F(MergeTest, AFingerprintIsThatOfTheTensorsNotOfTheFiles) {
  const Tensors weights = write_model(base, small_model(Architecture::llama));
  const std::string before = fingerprint_of(checkpoint::open_checkpoint(base));
  Tensors first, second;
  for (const auto& [name, tensor] : weights) (first.size() < 5 ? first : second)[name] = tensor;
  std::filesystem::remove(base / "model.safetensors");
  write_safetensors(base / "a.safetensors", second);
  write_safetensors(base / "b.safetensors", first);
  EXPECT_EQ(fingerprint_of(checkpoint::open_checkpoint(base)), before);
}

TEST_F(MergeTest, ACopyOfTheBasesEmbeddingHasToBeEqual) {
  const model::ModelConfig model = small_model(Architecture::llama);
  const Tensors weights = write_model(base, model);
  Tensors tensors;
  for (const auto& [name, tensor] : write_adapter(adapter, {.target_modules = {.list = {"embed_tokens"}}}, model))
    tensors["base_model.model." + name] = tensor;
  at::Tensor& copy = tensors["base_model.model.model.embed_tokens.base_layer.weight"];
  copy = weights.at("model.embed_tokens.weight").clone();
  write_safetensors(adapter / "adapter_model.safetensors", tensors);
  EXPECT_NO_THROW(with_adapter(checkpoint::open_checkpoint(base), open_adapter_folder(adapter)));
  copy[3][1] += 0.5;
  write_safetensors(adapter / "adapter_model.safetensors", tensors);
  EXPECT_THROW(with_adapter(checkpoint::open_checkpoint(base), open_adapter_folder(adapter)), CheckpointError);
}

TEST_F(MergeTest, AnAdapterLeadsToItsBase) {
  const model::ModelConfig model = small_model(Architecture::llama);
  write_model(base, model);
  write_adapter(adapter, {.base_model_name_or_path = base.string()}, model);
  EXPECT_EQ(weights_of({.model = adapter}), base);
  EXPECT_NE(open_model({.model = adapter}).change, nullptr);
  EXPECT_NE(open_model({.model = base, .adapter = adapter}).change, nullptr);
  EXPECT_EQ(open_model({.model = base}).change, nullptr);
  EXPECT_THROW(open_model({.model = base, .base = base}), UsageError);
  EXPECT_THROW(open_model({.model = adapter, .adapter = adapter}), UsageError);
  std::filesystem::rename(base, scratch / "moved");
  try {
    open_model({.model = adapter});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("--base PATH"), std::string::npos) << error.what();
  }
  EXPECT_NE(open_model({.model = adapter, .base = scratch / "moved"}).change, nullptr);
  write_adapter(adapter, {}, model);
  EXPECT_THROW(open_model({.model = adapter}), UsageError);
}

}  // namespace
}  // namespace trireme::adapt
