#include "trireme/formats/gguf/tensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <tuple>

#include "tests/checkpoint/fixtures.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/checkpoint/load.h"
#include "trireme/checkpoint/safetensors_tensors.h"
#include "trireme/formats/convert.h"
#include "trireme/formats/gguf/config.h"

namespace trireme::fuzz {
void fuzz_gguf(std::string_view bytes);
}

namespace trireme::formats {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// A llama of one block with a tokenizer of four tokens: everything a reader looks at, in 3 KiB.
GgufMetadata small_metadata() {
  GgufMetadata metadata;
  metadata.add("general.architecture", "llama");
  for (const char* key : {"context_length", "embedding_length", "feed_forward_length"})
    metadata.add(std::string("llama.") + key, uint32_t{32});
  metadata.add("llama.block_count", uint32_t{1});
  metadata.add("llama.attention.head_count", uint32_t{2});
  metadata.add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  const std::vector<std::string> tokens{"a", "b", "ab", "<|end|>"}, merges{"a b"};
  const std::vector<int32_t> types{1, 1, 1, 3};
  metadata.add("tokenizer.ggml.model", "gpt2");
  metadata.add("tokenizer.ggml.tokens", tokens);
  metadata.add("tokenizer.ggml.token_type", std::span<const int32_t>(types));
  metadata.add("tokenizer.ggml.merges", merges);
  metadata.add("tokenizer.ggml.eos_token_id", uint32_t{3});
  metadata.add("tokenizer.ggml.add_bos_token", false);
  return metadata;
}

std::vector<GgufTarget> small_tensors() {
  return {{"token_embd.weight", {4, 32}, GgufType::q8_0},     {"output_norm.weight", {32}, GgufType::f32},
          {"blk.0.attn_norm.weight", {32}, GgufType::f32},    {"blk.0.ffn_norm.weight", {32}, GgufType::f32},
          {"blk.0.attn_q.weight", {32, 32}, GgufType::f16},   {"blk.0.attn_k.weight", {32, 32}, GgufType::bf16},
          {"blk.0.attn_v.weight", {32, 32}, GgufType::f16},   {"blk.0.attn_output.weight", {32, 32}, GgufType::f16},
          {"blk.0.ffn_gate.weight", {32, 32}, GgufType::f16}, {"blk.0.ffn_up.weight", {32, 32}, GgufType::f16},
          {"blk.0.ffn_down.weight", {32, 32}, GgufType::f16}};
}

std::vector<float> counted(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), -17.0f);
  return values;
}

void write_small(const fs::path& path, const GgufMetadata& metadata = small_metadata(),
                 const std::vector<GgufTarget>& tensors = small_tensors()) {
  fs::remove(path);
  GgufSink sink(path, metadata, tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t count = checkpoint::num_elements(tensors[i].shape);
    sink.write(i, 0, count, counted(count).data(), checkpoint::Dtype::f32);
  }
  sink.finish();
}

std::string refusal(std::string_view bytes) {
  try {
    parse_gguf(std::as_bytes(std::span(bytes)), "x.gguf");
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

std::string replaced(std::string bytes, const std::string& from, const std::string& to) {
  const size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return bytes.replace(at, from.size(), to);
}

TEST(Gguf, WhatIsWrittenIsReadBack) {
  const checkpoint::ScratchFolder folder;
  write_small(folder / "x.gguf");
  const GgufSource source(folder / "x.gguf");
  const GgufHeader& header = source.header();
  EXPECT_EQ(header.text("general.architecture"), "llama");
  EXPECT_EQ(header.integer("llama.block_count"), 1);
  EXPECT_EQ(header.texts("tokenizer.ggml.tokens")->at(3), "<|end|>");
  EXPECT_EQ(header.integers("tokenizer.ggml.token_type")->at(3), 3);
  EXPECT_EQ(header.boolean("tokenizer.ggml.add_bos_token"), false);
  std::vector<float> values(1024);
  source.read(4, 0, 1024, values.data(), checkpoint::Dtype::f32);
  EXPECT_EQ(values, counted(1024));  // whole numbers up to 2048 are exact in float16
}

TEST(Gguf, PiecesAcrossBlocksEqualTheWhole) {
  const checkpoint::ScratchFolder folder;
  write_small(folder / "x.gguf");
  const GgufSource source(folder / "x.gguf");
  std::vector<float> whole(128), piece(128);
  source.read(0, 0, 128, whole.data(), checkpoint::Dtype::f32);
  for (const auto& [begin, end] : {std::pair{0, 1}, {31, 33}, {5, 128}, {64, 64}, {127, 128}}) {
    source.read(0, begin, end, piece.data(), checkpoint::Dtype::f32);
    for (int i = begin; i < end; ++i) EXPECT_EQ(piece[static_cast<size_t>(i - begin)], whole[static_cast<size_t>(i)]);
  }
}

TEST(Gguf, EveryTruncationIsRefused) {
  const checkpoint::ScratchFolder folder;
  write_small(folder / "x.gguf");
  const std::string bytes = base::read_file(folder / "x.gguf");
  EXPECT_EQ(refusal(bytes), "");
  for (size_t length = 0; length < bytes.size(); ++length) {
    ASSERT_NE(refusal(std::string_view(bytes).substr(0, length)), "") << length;
  }
}

TEST(Gguf, NoChangedByteCrashes) {
  const checkpoint::ScratchFolder folder;
  write_small(folder / "x.gguf");
  const std::string bytes = base::read_file(folder / "x.gguf");
  for (size_t at = 0; at < 1400; ++at) {
    for (const int change : {1, 0x80, 0xff}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ change);
      fuzz::fuzz_gguf(changed);
    }
  }
}

TEST(Gguf, BrokenRulesAreNamed) {
  const checkpoint::ScratchFolder folder;
  write_small(folder / "x.gguf");
  const std::string bytes = base::read_file(folder / "x.gguf");
  EXPECT_THAT(refusal("GGML" + bytes.substr(4)), HasSubstr("does not begin with 'GGUF'"));
  EXPECT_THAT(refusal(bytes.substr(0, 4) + std::string("\0\0\0\3", 4) + bytes.substr(8)), HasSubstr("big-endian"));
  EXPECT_THAT(refusal(bytes.substr(0, 4) + std::string("\1\0\0\0", 4) + bytes.substr(8)), HasSubstr("version 1"));
  EXPECT_THAT(refusal(replaced(bytes, "blk.0.ffn_norm.weight", "blk.0.ffn_norm.weigh\xff")), HasSubstr("not UTF-8"));
  EXPECT_THAT(refusal(replaced(bytes, "tokenizer.ggml.tokens", "tokenizer.ggml.merges")),
              HasSubstr("has the key 'tokenizer.ggml.merges' twice"));
  EXPECT_THAT(refusal(replaced(bytes, "blk.0.attn_q", "blk.0.attn_k")),
              HasSubstr("names tensor 'blk.0.attn_k.weight' twice"));
  std::string type(bytes);
  const size_t entry = type.find("blk.0.attn_q.weight") + 19 + 4 + 16;
  type[entry] = 10;
  EXPECT_THAT(refusal(type), HasSubstr("'blk.0.attn_q.weight' of x.gguf is of type Q2_K"));
  std::string offset(bytes);
  offset[entry + 4] = 64;
  offset[entry + 5] = 0;
  EXPECT_THAT(refusal(offset), HasSubstr("overlap"));
  offset[entry + 4] = 65;
  EXPECT_THAT(refusal(offset), HasSubstr("multiple of 32"));
}

TEST(Gguf, LlamaThreeScalingIsFoundInItsTable) {
  const Llama3Scaling cases[] = {{8, 1, 4, 8192}, {32, 1, 4, 8192}, {16, 1, 8, 5000}, {4, 1, 2, 4096}};
  for (const Llama3Scaling& scaling : cases) {
    const auto found = find_llama3_scaling(llama3_divisors(scaling, 128, 500000), 500000);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->original_max_position_embeddings, scaling.original_max_position_embeddings);
    EXPECT_NEAR(found->high_freq_factor, scaling.high_freq_factor, 1e-3);
  }
  EXPECT_FALSE(find_llama3_scaling(std::vector<float>{1, 3, 2, 8}, 500000).has_value());
}

std::string convert_refusal(const ConvertRequest& request) {
  try {
    convert_checkpoint(request);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Convert, NothingIsLeftOfWhatFails) {
  const checkpoint::ScratchFolder folder;
  write_small(folder / "x.gguf");
  const auto stop = [](const ConvertProgress&) { throw UsageError("stopped by request"); };
  EXPECT_THAT(convert_refusal({.source = folder / "x.gguf", .out = folder / "out", .progress = stop}),
              HasSubstr("stopped"));
  EXPECT_THAT(convert_refusal({.source = folder / "x.gguf", .out = folder / "out", .dtype = "q2_k"}),
              HasSubstr("no dtype q2_k"));
  EXPECT_THAT(convert_refusal({.source = folder / "y.gguf", .out = folder / "out"}), HasSubstr("there is no"));
  EXPECT_THAT(
      convert_refusal({.source = folder / "x.gguf", .out = folder / "models" / "mine" / "out", .progress = stop}),
      HasSubstr("stopped"));
  EXPECT_THAT(names_in(folder.path()), testing::ElementsAre("x.gguf"));
  fs::create_directory(folder / "models");
  EXPECT_THAT(
      convert_refusal({.source = folder / "x.gguf", .out = folder / "models" / "mine" / "out", .progress = stop}),
      HasSubstr("stopped"));
  EXPECT_THAT(names_in(folder.path()), testing::ElementsAre("models", "x.gguf")) << "this one was there";
  EXPECT_THAT(names_in(folder / "models"), testing::IsEmpty());
}

TEST(Convert, MakesTheFoldersAroundItsPlace) {
  const checkpoint::ScratchFolder folder;
  write_small(folder / "x.gguf");
  EXPECT_EQ(convert_refusal({.source = folder / "x.gguf", .out = folder / "models" / "mine" / "out"}), "");
  EXPECT_THAT(names_in(folder / "models" / "mine" / "out"), testing::Contains("model.safetensors"));
  EXPECT_THAT(convert_refusal({.source = folder / "x.gguf", .out = folder / "x.gguf" / "mine" / "out"}),
              HasSubstr("x.gguf is no folder"));
}

TEST(Convert, WhatIsThereStaysUnlessForced) {
  const checkpoint::ScratchFolder folder;
  write_small(folder / "x.gguf");
  const ConvertRequest request{.source = folder / "x.gguf", .out = folder / "out"};
  EXPECT_EQ(convert_refusal(request), "");
  EXPECT_THAT(names_in(folder / "out"), testing::Contains("model.safetensors"));
  checkpoint::overwrite(folder / "out" / "config.json", "{}");
  EXPECT_THAT(convert_refusal(request), HasSubstr("exists already"));
  EXPECT_EQ(base::read_file(folder / "out" / "config.json"), "{}");
  ConvertRequest forced = request;
  forced.force = true;
  EXPECT_EQ(convert_refusal(forced), "");
  EXPECT_NE(base::read_file(folder / "out" / "config.json"), "{}");
  fs::create_directory(folder / "photos");
  checkpoint::overwrite(folder / "photos" / "cat.jpg", "meow");
  forced.out = folder / "photos";
  EXPECT_THAT(convert_refusal(forced),
              HasSubstr("photos is not replaced: it holds cat.jpg, which is no part of a model"));
  const std::string weights = base::read_file(folder / "out" / "model.safetensors");
  EXPECT_THAT(convert_refusal(
                  {.source = folder / "out", .out = folder / "out" / "model.safetensors", .to = "gguf", .force = true}),
              HasSubstr("is read here"));
  EXPECT_EQ(base::read_file(folder / "out" / "model.safetensors"), weights);
  EXPECT_THAT(names_in(folder.path()), testing::ElementsAre("out", "photos", "x.gguf"));
}

TEST(Convert, KeysThatChangeTheMathematicsAreRefusedByName) {
  const checkpoint::ScratchFolder folder;
  GgufMetadata metadata = small_metadata();
  metadata.add("llama.logit_scale", 0.5f);
  write_small(folder / "x.gguf", metadata);
  EXPECT_THAT(convert_refusal({.source = folder / "x.gguf", .out = folder / "out"}), HasSubstr("'llama.logit_scale'"));
}

TEST(Convert, AFileThatIsNotAWholeModelIsRefusedInAndOut) {
  const checkpoint::ScratchFolder folder;
  write_small(folder / "whole.gguf");
  ASSERT_EQ(convert_refusal({.source = folder / "whole.gguf", .out = folder / "whole"}), "");
  const std::vector<GgufTarget> all = small_tensors();
  for (size_t lost = 0; lost < all.size(); ++lost) {
    std::vector<GgufTarget> tensors = all;
    tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(lost));
    write_small(folder / "lost.gguf", small_metadata(), tensors);
    EXPECT_NE(convert_refusal({.source = folder / "lost.gguf", .out = folder / "out"}), "") << all[lost].name;
    EXPECT_FALSE(fs::exists(folder / "out")) << all[lost].name;
  }
  write_small(folder / "lost.gguf", small_metadata(), {all[0], all[2]});  // one part of two
  EXPECT_THAT(convert_refusal({.source = folder / "lost.gguf", .out = folder / "out"}),
              testing::AllOf(HasSubstr("is not a whole model"), HasSubstr("is missing (and 8 more are)"),
                             HasSubstr("one part of several")));

  std::vector<GgufTarget> more = all;  // than the header says
  for (const GgufTarget& tensor : all)
    if (tensor.name.starts_with("blk.0."))
      more.push_back({"blk.1." + tensor.name.substr(6), tensor.shape, tensor.type});
  write_small(folder / "more.gguf", small_metadata(), more);
  EXPECT_THAT(convert_refusal({.source = folder / "more.gguf", .out = folder / "out"}),
              testing::AllOf(HasSubstr("more.gguf holds the tensor 'model.layers.1."), HasSubstr("does not use")));

  const checkpoint::Checkpoint whole = checkpoint::open_checkpoint(folder / "whole");
  for (const auto& [name, stored] : whole.tensors) {
    std::vector<checkpoint::TensorSpec> kept;
    for (const auto& [other, tensor] : whole.tensors)
      if (other != name) kept.push_back({.name = other, .shape = tensor.shape, .dtype = tensor.dtype});
    fs::remove_all(folder / "lost");
    fs::create_directory(folder / "lost");
    checkpoint::overwrite(folder / "lost" / "config.json", base::read_file(folder / "whole" / "config.json"));
    checkpoint::SafetensorsSink(folder / "lost", kept, checkpoint::kDefaultShardBytes).finish();
    EXPECT_THAT(convert_refusal({.source = folder / "lost", .out = folder / "out.gguf"}), HasSubstr("'" + name + "'"));
  }
}

TEST(Convert, JsonOfAnotherKindIsRefusedWithItsFile) {
  const checkpoint::ScratchFolder folder;
  write_small(folder / "x.gguf");
  ASSERT_EQ(convert_refusal({.source = folder / "x.gguf", .out = folder / "model"}), "");
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"config.json", R"({"model_type": 5})", "config.json has a value of the wrong kind"},
      {"config.json", R"({"rope_scaling": "linear"})", "config.json has a value of the wrong kind"},
      {"tokenizer.json", R"({"added_tokens": [{"id": 3}]})", "tokenizer.json or tokenizer_config.json has a value"},
      {"tokenizer.json", R"({"model": {"merges": [7]}})", "tokenizer.json or tokenizer_config.json has a value"},
      {"tokenizer.json", R"({"model": {"merges": ["ab"]}})", "the merge 'ab' has no blank"},
      {"tokenizer.json", R"({"model": null})", "tokenizer.json has no vocabulary"},
      {"tokenizer.json", R"({"model": {"merges": ["a c"]}})",
       "the tokenizer tokenizer.json cannot be used: merge 0 is about 'ac', which"}};
  for (const auto& [name, patch, refusal] : cases) {
    const std::string sound = base::read_file(folder / "model" / name);
    nlohmann::json changed = nlohmann::json::parse(sound);
    changed.merge_patch(nlohmann::json::parse(patch));
    checkpoint::overwrite(folder / "model" / name, changed.dump());
    EXPECT_THAT(convert_refusal({.source = folder / "model", .out = folder / "out.gguf"}), HasSubstr(refusal)) << patch;
    checkpoint::overwrite(folder / "model" / name, sound);
  }
}

// A tuned model ends its replies with a token of its own, beside the tokenizer's.
TEST(Convert, TheTokensThatEndATextComeAlongBothWays) {
  const checkpoint::ScratchFolder folder;
  const auto ends_in = [&](const char* name) {
    return nlohmann::json::parse(base::read_file(folder / "model" / name))["eos_token_id"];
  };
  write_small(folder / "x.gguf");
  ASSERT_EQ(convert_refusal({.source = folder / "x.gguf", .out = folder / "model"}), "");
  EXPECT_EQ(ends_in("generation_config.json"), 3);
  for (const char* ends : {"[3, 1]", "[1]", "[3, 1, 0]"}) {
    std::vector<std::string> notes;
    checkpoint::overwrite(folder / "model" / "generation_config.json", fmt::format(R"({{"eos_token_id": {}}})", ends));
    ASSERT_EQ(convert_refusal({.source = folder / "model",
                               .out = folder / "out.gguf",
                               .force = true,
                               .note = [&](const std::string& note) { notes.push_back(note); }}),
              "");
    EXPECT_EQ(GgufSource(folder / "out.gguf").header().integer("tokenizer.ggml.eos_token_id"), 3);
    EXPECT_EQ(GgufSource(folder / "out.gguf").header().integer("tokenizer.ggml.eot_token_id"), 1);
    EXPECT_EQ(std::ranges::count(notes, "GGUF has words for two tokens that end a text; of eos_token_id it lacks 0"),
              std::string(ends) == "[3, 1, 0]");
    ASSERT_EQ(convert_refusal({.source = folder / "out.gguf", .out = folder / "model", .force = true}), "");
    for (const char* name : {"config.json", "generation_config.json"})
      EXPECT_EQ(ends_in(name), nlohmann::json({3, 1})) << name;
  }
  GgufMetadata beyond = small_metadata();
  beyond.add("tokenizer.ggml.eot_token_id", uint32_t{4});
  write_small(folder / "x.gguf", beyond);
  EXPECT_THAT(convert_refusal({.source = folder / "x.gguf", .out = folder / "other"}),
              HasSubstr("its eot token is number 4 of 4"));
}

// Of tokenizers with byte fallback, GGUF says only whether a blank stands before the text.
TEST(Convert, RulesOfATokenizerThatGgufCannotSayAreRefused) {
  const checkpoint::ScratchFolder folder;
  write_small(folder / "x.gguf");
  ASSERT_EQ(convert_refusal({.source = folder / "x.gguf", .out = folder / "model"}), "");
  using nlohmann::json;
  const json prepend{{"type", "Prepend"}, {"prepend", "\u2581"}};
  const json replace{{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  const json split{{"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "MergedWithPrevious"}};
  const json metaspace{{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}};
  const json digits{{"type", "Digits"}, {"individual_digits", true}};
  const auto steps = [](const char* key, const std::vector<json>& list) {
    return json{{"type", "Sequence"}, {key, list}};
  };
  std::vector<std::string> notes;
  const auto refusal = [&](const json& normalizer, const json& pre_tokenizer, bool rstrip = false) {
    const json token{{"id", 3}, {"content", "<|end|>"}, {"special", true}, {"rstrip", rstrip}, {"lstrip", false}};
    const json model{{"type", "BPE"},
                     {"byte_fallback", true},
                     {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}, {"<|end|>", 3}}},
                     {"merges", {"a b"}}};
    const json whole{{"added_tokens", json::array({token})},
                     {"normalizer", normalizer},
                     {"pre_tokenizer", pre_tokenizer},
                     {"model", model}};
    checkpoint::overwrite(folder / "model" / "tokenizer.json", whole.dump());
    notes.clear();
    return convert_refusal(
        {.source = folder / "model", .out = folder / "out.gguf", .force = true, .note = [&](const std::string& note) {
           notes.push_back(note);
         }});
  };
  const auto adds_prefix = [&] {
    return GgufSource(folder / "out.gguf").header().boolean("tokenizer.ggml.add_space_prefix").value();
  };
  EXPECT_EQ(refusal(steps("normalizers", {prepend, replace}), nullptr), "");
  EXPECT_TRUE(adds_prefix());
  EXPECT_EQ(refusal(replace, split), "");
  EXPECT_FALSE(adds_prefix());
  EXPECT_EQ(refusal(nullptr, metaspace), "");
  EXPECT_THAT(notes, testing::Not(testing::Contains(HasSubstr("rstrip"))));
  EXPECT_TRUE(adds_prefix());
  json older{{"type", "Metaspace"}, {"replacement", "\u2581"}, {"add_prefix_space", false}};
  EXPECT_EQ(refusal(nullptr, older), "");
  EXPECT_FALSE(adds_prefix());
  EXPECT_EQ(refusal(nullptr, metaspace, /*rstrip=*/true), "");
  EXPECT_THAT(notes, testing::Contains(HasSubstr("of 1 added token (rstrip of '<|end|>')")));
  const json lower{{"type", "Lowercase"}}, nfkc{{"type", "NFKC"}};
  EXPECT_THAT(refusal(steps("normalizers", {lower, prepend, replace}), nullptr),
              HasSubstr(R"(no word for {"type":"Lowercase"} in the normalizer)"));
  EXPECT_THAT(refusal(nfkc, metaspace), HasSubstr(R"(no word for {"type":"NFKC"} in the normalizer)"));
  EXPECT_THAT(refusal(nullptr, steps("pretokenizers", {metaspace, digits})), HasSubstr("\"Digits\"} in the pre_token"));
  EXPECT_THAT(refusal(nullptr, split), HasSubstr("\"Split\"} in the pre_tokenizer"));
  EXPECT_THAT(refusal(nullptr, nullptr), HasSubstr("it keeps blanks"));
}

// transformers takes 256 and llama.cpp the width of a head, whatever the file says.
TEST(Convert, AScaleThatReadersOfGemmaDoNotTakeIsNoted) {
  const auto notes_with = [](int head_dim, int scalar) {
    nlohmann::json config{
        {"model_type", "gemma2"}, {"head_dim", head_dim}, {"query_pre_attn_scalar", scalar}, {"rms_norm_eps", 1e-6}};
    for (const char* key : {"hidden_size", "intermediate_size", "max_position_embeddings", "vocab_size"})
      config[key] = 32;
    for (const char* key : {"num_hidden_layers", "num_attention_heads", "num_key_value_heads"}) config[key] = 2;
    GgufMetadata metadata;
    return config_to_gguf(config, metadata).notes;
  };
  EXPECT_THAT(notes_with(256, 256), testing::IsEmpty());
  EXPECT_THAT(notes_with(128, 144), testing::ElementsAre(HasSubstr("query_pre_attn_scalar is 144, and programs")));
  EXPECT_THAT(notes_with(128, 128), testing::ElementsAre(HasSubstr("take 256 or the width of a head (128)")));
  EXPECT_THAT(notes_with(128, 256), testing::ElementsAre(HasSubstr("gemma2.attention.scale")));
}

TEST(Convert, ValuesBeyondFloat16AreRefused) {
  const checkpoint::ScratchFolder folder;
  std::vector<GgufTarget> tensors = small_tensors();
  tensors[0].type = GgufType::f32;
  GgufSink sink(folder / "x.gguf", small_metadata(), tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t count = checkpoint::num_elements(tensors[i].shape);
    std::vector<float> values(static_cast<size_t>(count), 1.0f);
    if (i == 0) values[7] = 1e6f;
    sink.write(i, 0, count, values.data(), checkpoint::Dtype::f32);
  }
  sink.finish();
  EXPECT_THAT(convert_refusal({.source = folder / "x.gguf", .out = folder / "out", .dtype = "float16"}),
              HasSubstr("'model.embed_tokens.weight' holds values beyond 65504"));
  EXPECT_EQ(convert_refusal({.source = folder / "x.gguf", .out = folder / "out", .dtype = "bfloat16"}), "");
}

}  // namespace
}  // namespace trireme::formats
