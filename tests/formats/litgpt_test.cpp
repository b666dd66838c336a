#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/fixtures.h"
#include "tests/checkpoint/memory_source.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/checkpoint/safetensors_tensors.h"
#include "trireme/formats/convert.h"
#include "trireme/formats/litgpt/config.h"
#include "trireme/formats/litgpt/names.h"
#include "trireme/formats/torch/file.h"

namespace trireme::formats {
namespace {

using testing::HasSubstr;

/// Four heads of two rows, two groups.
model::ModelConfig small(model::Architecture architecture) {
  model::ModelConfig c = model::default_config(architecture);
  c.vocab_size = 6;
  c.hidden_size = 8;
  c.intermediate_size = 12;
  c.num_attention_heads = 4;
  c.num_key_value_heads = 2;
  c.head_dim = 2;
  model::set_num_hidden_layers(c, 1);
  c.attention_scale = 0;
  return c;
}

std::vector<std::string> names_of(const checkpoint::TensorSource& source) {
  std::vector<std::string> names;
  for (const checkpoint::TensorSpec& tensor : source.tensors()) names.push_back(tensor.name);
  return names;
}

void expect_same_tensors(const checkpoint::TensorSource& got, const checkpoint::TensorSource& expected) {
  for (size_t i = 0; i < expected.tensors().size(); ++i) {
    size_t j = 0;
    while (j < got.tensors().size() && got.tensors()[j].name != expected.tensors()[i].name) ++j;
    ASSERT_LT(j, got.tensors().size()) << expected.tensors()[i].name;
    EXPECT_EQ(got.tensors()[j].shape, expected.tensors()[i].shape);
    EXPECT_EQ(checkpoint::read_whole(got, j), checkpoint::read_whole(expected, i)) << expected.tensors()[i].name;
  }
}

checkpoint::MemorySource hugging_face(const model::ModelConfig& c) {
  checkpoint::MemorySource source;
  const std::string block = "model.layers.0.";
  source.add_counted("model.embed_tokens.weight", {6, 8});
  source.add_counted(block + "input_layernorm.weight", {8});
  source.add_counted(block + "self_attn.q_proj.weight", {8, 8});
  source.add_counted(block + "self_attn.k_proj.weight", {4, 8});
  source.add_counted(block + "self_attn.v_proj.weight", {4, 8});
  source.add_counted(block + "self_attn.o_proj.weight", {8, 8});
  if (c.query_key_norm) source.add_counted(block + "self_attn.q_norm.weight", {2});
  source.add_counted(block + "post_attention_layernorm.weight", {8});
  if (c.post_norms) source.add_counted(block + "pre_feedforward_layernorm.weight", {8});
  source.add_counted(block + "mlp.gate_proj.weight", {12, 8});
  source.add_counted(block + "mlp.up_proj.weight", {12, 8});
  source.add_counted(block + "mlp.down_proj.weight", {8, 12});
  if (c.post_norms) source.add_counted(block + "post_feedforward_layernorm.weight", {8});
  source.add_counted("model.norm.weight", {8});
  if (!c.tie_word_embeddings) source.add_counted("lm_head.weight", {6, 8});
  return source;
}

TEST(LitGpt, names_of_every_family_go_there_and_back) {
  using A = model::Architecture;
  for (const A architecture : {A::llama, A::mistral, A::qwen2, A::qwen3, A::gemma2, A::gemma3}) {
    for (const bool tied : {false, true}) {
      model::ModelConfig config = small(architecture);
      config.tie_word_embeddings = tied;
      const checkpoint::MemorySource source = hugging_face(config);
      const MappedSource lit(source, hugging_face_to_litgpt(source.tensors(), config));
      EXPECT_EQ(lit.tensors().size(), source.tensors().size() - 2 + (tied ? 1 : 0));
      EXPECT_EQ(litgpt_head_is_tied(lit), tied);
      const MappedSource back(lit, litgpt_to_hugging_face(lit.tensors(), config));
      EXPECT_EQ(names_of(back), names_of(source)) << model::model_type(architecture);
      expect_same_tensors(back, source);
    }
  }
}

TEST(LitGpt, gemma_calls_the_norms_around_its_mlp_otherwise) {
  const model::ModelConfig config = small(model::Architecture::gemma3);
  const checkpoint::MemorySource source = hugging_face(config);
  const MappedSource lit(source, hugging_face_to_litgpt(source.tensors(), config));
  checkpoint::MemorySource expected;
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    const std::string& name = source.tensors()[i].name;
    const std::string to =
        name.ends_with("pre_feedforward_layernorm.weight")    ? "transformer.h.0.norm_2.weight"
        : name.ends_with("post_attention_layernorm.weight")   ? "transformer.h.0.post_attention_norm.weight"
        : name.ends_with("post_feedforward_layernorm.weight") ? "transformer.h.0.post_mlp_norm.weight"
                                                              : "";
    if (!to.empty()) expected.add({.name = to, .shape = {8}}, source.bytes(i));
  }
  ASSERT_EQ(expected.tensors().size(), 3u);
  expect_same_tensors(lit, expected);
}

TEST(LitGpt, older_files_interleave_q_k_and_v_by_group) {
  const model::ModelConfig config = small(model::Architecture::qwen2);
  checkpoint::MemorySource lit;
  lit.add_counted("transformer.h.0.attn.attn.bias", {16});  // two groups of q q q q k k v v
  const MappedSource back(lit, litgpt_to_hugging_face(lit.tensors(), config));
  const auto values = [&](size_t tensor) {
    const std::string bytes = checkpoint::read_whole(back, tensor);
    std::vector<float> result(bytes.size() / 4);
    std::memcpy(result.data(), bytes.data(), bytes.size());
    return result;
  };
  EXPECT_EQ(back.tensors()[1].name, "model.layers.0.self_attn.k_proj.bias");
  EXPECT_EQ(values(0), (std::vector<float>{0, 1, 2, 3, 8, 9, 10, 11}));
  EXPECT_EQ(values(1), (std::vector<float>{4, 5, 12, 13}));
  EXPECT_EQ(values(2), (std::vector<float>{6, 7, 14, 15}));
}

TEST(LitGpt, tensors_without_a_name_on_the_other_side_are_refused) {
  const model::ModelConfig config = small(model::Architecture::llama);
  const auto error = [&](const std::string& name, bool to_lit) {
    const std::vector<checkpoint::TensorSpec> tensors = {{.name = name, .shape = {3, 8}}};
    try {
      to_lit ? hugging_face_to_litgpt(tensors, config) : litgpt_to_hugging_face(tensors, config);
    } catch (const CheckpointError& failure) {
      return std::string(failure.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error("transformer.h.0.mlp.experts.0.fc_1.weight", false),
              HasSubstr("is not a tensor of this model in LitGPT"));
  EXPECT_THAT(error("transformer.h.0.attn.qkv.weight", false), HasSubstr("has the shape [3, 8]; the heads of"));
  EXPECT_THAT(error("model.layers.0.block_sparse_moe.gate.weight", true), HasSubstr("has no name in LitGPT"));
  EXPECT_THAT(error("model.layers.0.self_attn.q_proj.weight", true), HasSubstr("k_proj.weight' beside it"));
}

void write_zeros(TensorSink&& sink, const std::vector<TensorSpec>& tensors) {
  const std::vector<std::byte> zeros(1024);
  for (size_t i = 0; i < tensors.size(); ++i)
    sink.write(i, 0, num_elements(tensors[i].shape), zeros.data(), tensors[i].dtype);
  sink.finish();
}

TEST(LitGpt, a_model_that_lacks_a_tensor_is_refused_in_and_out) {
  const checkpoint::ScratchFolder folder;
  model::ModelConfig config = small(model::Architecture::llama);
  config.tie_word_embeddings = false;
  const checkpoint::MemorySource source = hugging_face(config);
  const std::vector<TensorSpec>& ours = source.tensors();
  const std::vector<TensorSpec> lit = MappedSource(source, hugging_face_to_litgpt(ours, config)).tensors();
  for (const char* name : {"ours", "lit"}) std::filesystem::create_directory(folder / name);
  checkpoint::overwrite(folder / "ours/config.json", config.to_hugging_face_json("float32"));
  checkpoint::overwrite(folder / "lit/model_config.yaml", to_litgpt_yaml(config));
  const auto refusal_without = [&](const std::string& name, std::vector<TensorSpec> tensors, size_t lost) {
    if (lost < tensors.size()) tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(lost));
    const bool is_lit = name == "lit";
    std::filesystem::remove(folder / name / (is_lit ? "lit_model.pth" : "model.safetensors"));
    if (is_lit)
      write_zeros(TorchFileSink(folder / "lit/lit_model.pth", tensors), tensors);
    else
      write_zeros(checkpoint::SafetensorsSink(folder / "ours", tensors, checkpoint::kDefaultShardBytes), tensors);
    return checkpoint::error_of<Error>([&] {
      convert_checkpoint(
          {.source = folder / name, .out = folder / (name + "-out"), .to = is_lit ? "safetensors" : "litgpt"});
    });
  };
  for (size_t lost = 0; lost < ours.size(); ++lost)
    EXPECT_THAT(refusal_without("ours", ours, lost), HasSubstr("'" + ours[lost].name + "'"));
  for (size_t lost = 0; lost < lit.size(); ++lost)
    EXPECT_THAT(refusal_without("lit", lit, lost), HasSubstr("is not a whole model")) << lit[lost].name;
  std::vector<TensorSpec> more = lit;  // than the configuration says
  more.push_back({.name = "transformer.h.9.norm_1.weight", .shape = {config.hidden_size}, .dtype = Dtype::f32});
  EXPECT_THAT(refusal_without("lit", more, more.size()), HasSubstr("'model.layers.9.input_layernorm.weight'"));
  EXPECT_EQ(refusal_without("ours", ours, ours.size()), "no error");
  EXPECT_EQ(refusal_without("lit", lit, lit.size()), "no error");
}

// Not for the name or the number of a tensor, which no other file of the model would mend.
TEST(LitGpt, a_classifier_is_refused_for_its_head_there_and_in_gguf) {
  const checkpoint::ScratchFolder folder;
  model::ModelConfig config = small(model::Architecture::llama);
  config.tie_word_embeddings = true;
  checkpoint::MemorySource source = hugging_face(config);
  source.add_counted("score.weight", {2, 8});
  std::string json = config.to_hugging_face_json("float32");
  const std::string name = "LlamaForCausalLM";
  ASSERT_NE(json.find(name), std::string::npos);
  json.replace(json.find(name), name.size(), "LlamaForSequenceClassification");
  std::filesystem::create_directory(folder / "model");
  checkpoint::overwrite(folder / "model/config.json", json);
  write_zeros(checkpoint::SafetensorsSink(folder / "model", source.tensors(), checkpoint::kDefaultShardBytes),
              source.tensors());
  const auto refusal = [&](const char* to) {
    return checkpoint::error_of<Error>(
        [&] { convert_checkpoint({.source = folder / "model", .out = folder / "out", .to = to}); });
  };
  EXPECT_THAT(refusal("litgpt"), HasSubstr("model_config.yaml cannot express a classification head"));
  EXPECT_THAT(refusal("gguf"), HasSubstr("its config.json has a classification head"));
}

TEST(LitGpt, rows_beyond_the_heads_are_refused_and_not_left_out) {
  const model::ModelConfig config = small(model::Architecture::llama);
  std::vector<checkpoint::TensorSpec> tensors = hugging_face(config).tensors();
  for (checkpoint::TensorSpec& tensor : tensors)
    if (tensor.name.ends_with("q_proj.weight")) tensor.shape[0] *= 2;
  try {
    hugging_face_to_litgpt(tensors, config);
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("q_proj.weight' has the shape [16, 8]; the heads of config.json make 8 rows"));
  }
}

std::string corpus(const std::string& name) {
  return base::read_file(std::filesystem::path(TRIREME_LITGPT_CONFIGS) / (name + ".yaml"));
}

TEST(LitGpt, configs_that_litgpt_wrote_are_these_models) {
  using A = model::Architecture;
  const auto read = [](const std::string& name) { return parse_litgpt_config(corpus(name), name); };
  const model::ModelConfig llama = read("Llama-3.2-1B"), gemma = read("Gemma-3-1b-it");
  EXPECT_EQ(llama.architecture, A::llama);
  EXPECT_EQ(llama.vocab_size, 128256);
  EXPECT_EQ(llama.rope_theta, 500000);
  EXPECT_EQ(llama.rope_scaling.type, model::RopeScaling::Type::llama3);
  EXPECT_EQ(llama.rope_scaling.factor, 32);
  EXPECT_EQ(gemma.architecture, A::gemma3);
  EXPECT_EQ(gemma.rope_local_theta, 10000);
  EXPECT_EQ(gemma.sliding_window, 512);
  EXPECT_EQ(read("Gemma-2-2b").attention_softcap, 50);
  EXPECT_EQ(read("Gemma-2-2b").windowed, (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(read("Qwen3-0.6B").architecture, A::qwen3);
  EXPECT_EQ(read("Qwen2.5-0.5B").architecture, A::qwen2);
  EXPECT_EQ(read("Mistral-7B-v0.1").architecture, A::mistral);
  EXPECT_EQ(read("Mistral-7B-v0.1").sliding_window, 4096);
}

TEST(LitGpt, a_config_comes_back_as_the_same_model) {
  for (const char* name :
       {"Llama-3.2-1B", "Gemma-2-2b", "Gemma-3-1b-it", "Qwen3-0.6B", "Qwen2.5-0.5B", "Mistral-7B-v0.1"}) {
    const model::ModelConfig config = parse_litgpt_config(corpus(name), name);
    const std::string json = config.to_hugging_face_json("float32");
    const model::ModelConfig read = model::parse_hugging_face_config(json, "config.json");
    const model::ModelConfig again = parse_litgpt_config(to_litgpt_yaml(read), "again");
    EXPECT_TRUE(read.same_model(config)) << json;
    EXPECT_TRUE(again.same_model(config)) << to_litgpt_yaml(read);
  }
}

TEST(LitGpt, what_cannot_be_said_is_refused_by_name) {
  const auto error = [](const std::string& yaml) {
    try {
      parse_litgpt_config(yaml, "model_config.yaml");
    } catch (const UsageError& failure) {
      return std::string(failure.what());
    }
    return std::string("no error");
  };
  const std::string whole = corpus("Llama-3.2-1B");
  const auto changed = [&](const std::string& key, const std::string& value) {
    const size_t begin = whole.find("\n" + key + ":") + 1, end = whole.find('\n', begin);
    return std::string(whole).replace(begin, end - begin, key + ": " + value);
  };
  EXPECT_EQ(error(whole), "no error");
  EXPECT_THAT(error(changed("norm_class_name", "LayerNorm")), HasSubstr("norm_class_name is LayerNorm"));
  EXPECT_THAT(error(changed("parallel_residual", "true")), HasSubstr("parallel_residual is true"));
  EXPECT_THAT(error(changed("n_expert", "8")), HasSubstr("n_expert is 8"));
  EXPECT_THAT(error(changed("rotary_percentage", "0.5")), HasSubstr("rotary_percentage is 0.5"));
  EXPECT_THAT(error(changed("name", "Gemma-9")), HasSubstr("name says Gemma"));
  EXPECT_THAT(error(whole + "new_key: 1\n"), HasSubstr("new_key is not known"));
  EXPECT_THAT(error("a: [1"), HasSubstr("is not a model_config.yaml"));
  model::ModelConfig gpt2 = model::default_config(model::Architecture::gpt2);
  EXPECT_THROW(to_litgpt_yaml(gpt2), UsageError);
  model::ModelConfig yarn = small(model::Architecture::qwen3);
  yarn.rope_scaling.type = model::RopeScaling::Type::yarn;
  EXPECT_THROW(to_litgpt_yaml(yarn), UsageError);
}

}  // namespace
}  // namespace trireme::formats
