// What a conversion must not do in silence, whatever the formats are.
#include "trireme/formats/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/checkpoint/fixtures.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/checkpoint/disk.h"
#include "trireme/checkpoint/good.h"
#include "trireme/checkpoint/load.h"
#include "trireme/checkpoint/rewrite.h"
#include "trireme/checkpoint/safetensors_tensors.h"
#include "trireme/formats/dcp/dcp.h"
#include "trireme/formats/torch/file.h"
#include "trireme/formats/whole_model.h"
#include "trireme/model/model.h"

namespace trireme::formats {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// The folder that relative paths begin in, for as long as this lives.
class Inside {
 public:
  explicit Inside(const fs::path& folder) : before_(fs::current_path()) { fs::current_path(folder); }
  ~Inside() { fs::current_path(before_); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  fs::path before_;
};

void write_model(const fs::path& folder, const std::vector<checkpoint::TensorSpec>& tensors) {
  fs::create_directories(folder);
  checkpoint::SafetensorsSink sink(folder, tensors, checkpoint::kDefaultShardBytes);
  int64_t most = 0;
  for (const checkpoint::TensorSpec& tensor : tensors) most = std::max(most, checkpoint::num_elements(tensor.shape));
  const std::vector<std::byte> zeros(static_cast<size_t>(8 * most));
  for (size_t i = 0; i < tensors.size(); ++i)
    sink.write(i, 0, checkpoint::num_elements(tensors[i].shape), zeros.data(), tensors[i].dtype);
  sink.finish();
}

model::ModelConfig tiny_llama() {
  model::ModelConfig c = model::catalogue_config("llama-5m");
  c.vocab_size = 16;
  c.hidden_size = 8;
  c.intermediate_size = 16;
  c.num_hidden_layers = 1;
  c.num_attention_heads = c.num_key_value_heads = 2;
  c.head_dim = 4;
  c.max_position_embeddings = 16;
  c.tie_word_embeddings = false;
  return c;
}

std::vector<checkpoint::TensorSpec> tensors_of(const model::ModelConfig& config, const std::string& prefix = "") {
  std::vector<checkpoint::TensorSpec> tensors;
  const model::Model model = model::build_model(config, {at::kFloat, at::kFloat});
  for (const model::ParameterGroup& group : model.groups)
    for (const model::ParameterSpec& p : group.parameters)
      tensors.push_back({.name = prefix + p.name, .shape = p.whole_shape(), .dtype = checkpoint::Dtype::f32});
  return tensors;
}

std::string refusal_of(const ConvertRequest& request) {
  return checkpoint::error_of<Error>([&] { convert_checkpoint(request); });
}

TEST(ConvertAnything, ABareNameIsAPlaceInThisFolder) {
  const checkpoint::ScratchFolder scratch;
  const Inside inside(scratch.path());
  write_model("model", {{.name = "a", .shape = {3}, .dtype = checkpoint::Dtype::f32}});
  const std::pair<const char*, const char*> cases[] = {
      {"plain", ""}, {"slash/", ""}, {"file.pth", ""}, {"folder", "pth"}, {"spread", "dcp"}};
  for (const auto& [out, to] : cases) {
    ConvertRequest request{.source = "model", .out = out, .to = to};
    EXPECT_EQ(refusal_of(request), "no error") << out;
    EXPECT_TRUE(fs::exists(out)) << out;
    request.force = true;
    if (std::string(out).ends_with(".pth")) {
      EXPECT_EQ(refusal_of(request), "no error") << out << " once more";
    }
  }
  EXPECT_EQ(refusal_of({.source = "file.pth", .out = "back"}), "no error");
  EXPECT_EQ(checkpoint::open_checkpoint("back").tensors.size(), 1u);
  checkpoint::save_sample(".", 1, 1);
  EXPECT_NO_THROW(checkpoint::rewrite("step-00000001", "copy", {}));
  EXPECT_NO_THROW(checkpoint::open_checkpoint("copy"));
  EXPECT_NO_THROW(checkpoint::remove_checkpoint("copy"));
  EXPECT_THAT(checkpoint::names_in("."), testing::Not(testing::Contains(testing::StartsWith(".tmp-"))));
}

TEST(ConvertAnything, ItsOwnFoldersWithoutAConfigAreReplacedWithForce) {
  const checkpoint::ScratchFolder folder;
  write_model(folder / "model", {{.name = "a", .shape = {3}, .dtype = checkpoint::Dtype::f32}});
  for (const char* to : {"safetensors", "pth", "dcp"}) {
    ConvertRequest request{.source = folder / "model", .out = folder / to, .to = to};
    EXPECT_EQ(refusal_of(request), "no error") << to;
    request.force = true;
    EXPECT_EQ(refusal_of(request), "no error") << to;
  }
  checkpoint::overwrite(folder / "safetensors/model.safetensors.txt", "");
  fs::remove(folder / "safetensors/model.safetensors");
  EXPECT_THAT(refusal_of({.source = folder / "model", .out = folder / "safetensors", .force = true}),
              HasSubstr("is a folder without a model"));
}

TEST(ConvertAnything, ParametersAreThoseOfTheModelInBlocksToo) {
  const checkpoint::ScratchFolder folder;
  model::ModelConfig config = tiny_llama();
  config.hidden_size = 64;  // rows of whole blocks
  config.intermediate_size = 128;
  config.head_dim = 32;
  int64_t elements = 0;
  for (const checkpoint::TensorSpec& tensor : tensors_of(config)) elements += checkpoint::num_elements(tensor.shape);
  write_model(folder / "model", tensors_of(config));
  checkpoint::overwrite(folder / "model/config.json", config.to_hugging_face_json("float32"));
  for (const char* dtype : {"bfloat16", "q8_0", "q4_0", "bnb.nf4", "bnb.nf4-dq"})
    EXPECT_EQ(convert_checkpoint({.source = folder / "model", .out = folder / dtype, .dtype = dtype}).elements,
              elements)
        << dtype;
}

TEST(ConvertAnything, AFileIsWrittenThroughALinkAndAFolderBesideItsTarget) {
  const checkpoint::ScratchFolder folder;
  write_model(folder / "model", {{.name = "a", .shape = {3}, .dtype = checkpoint::Dtype::f32}});
  fs::create_directory(folder / "elsewhere");
  for (const char* name : {"file.pth", "tensors"}) {
    fs::create_symlink(fs::path("elsewhere") / name, folder / name);
    EXPECT_EQ(refusal_of({.source = folder / "model", .out = folder / name}), "no error") << name;
    EXPECT_TRUE(fs::is_symlink(folder / name)) << name;
    EXPECT_TRUE(fs::exists(folder / "elsewhere" / name)) << name;
  }
  EXPECT_EQ(refusal_of({.source = folder / "model", .out = folder / "file.pth", .force = true}), "no error");
  EXPECT_TRUE(fs::is_symlink(folder / "file.pth"));
}

// Also those of a tokenizer that Trireme does not read: the next program may.
TEST(ConvertAnything, FilesOfATokenizerComeAlong) {
  const checkpoint::ScratchFolder folder;
  write_model(folder / "model", {{.name = "a", .shape = {3}, .dtype = checkpoint::Dtype::f32}});
  const char* names[] = {"vocab.txt",          "spiece.model",        "sentencepiece.bpe.model",
                         "chat_template.json", "chat_template.jinja", "tokenizer_config.json",
                         "o200k.tiktoken"};
  for (const char* name : names) checkpoint::overwrite(folder / "model" / name, name);
  for (const char* to : {"safetensors", "dcp"}) {
    ASSERT_EQ(refusal_of({.source = folder / "model", .out = folder / to, .to = to}), "no error");
    for (const char* name : names) EXPECT_EQ(base::read_file(folder / to / name), name) << to;
  }
}

TEST(ConvertAnything, EightBitFloatsDoNotBecomeOthersAndAreNotLeftOverEither) {
  const checkpoint::ScratchFolder folder;
  for (const checkpoint::Dtype scaled : {checkpoint::Dtype::f8_e4m3, checkpoint::Dtype::f8_e5m2}) {
    fs::remove_all(folder / "model");
    write_model(folder / "model", {{.name = "w", .shape = {4, 4}, .dtype = scaled},
                                   {.name = "n", .shape = {4}, .dtype = checkpoint::Dtype::f32},
                                   {.name = "i", .shape = {4}, .dtype = checkpoint::Dtype::i64}});
    for (const char* to : {"safetensors", "pth", "dcp"}) {
      EXPECT_THAT(refusal_of({.source = folder / "model", .out = folder / "out", .to = to, .dtype = "bfloat16"}),
                  testing::AllOf(HasSubstr("tensor 'w' is F8_"), HasSubstr("cannot become BF16")))
          << to;
      EXPECT_FALSE(fs::exists(folder / "out")) << to;
    }
    EXPECT_THAT(checkpoint::error_of<Error>(
                    [&] { checkpoint::rewrite(folder / "model", folder / "out", {.dtype = checkpoint::Dtype::f32}); }),
                HasSubstr("cannot become F32"));
    EXPECT_EQ(refusal_of({.source = folder / "model", .out = folder / "out"}), "no error");
    EXPECT_EQ(checkpoint::open_checkpoint(folder / "out").tensor("w").dtype, scaled)
        << "as it is, where nothing else is asked for";
    fs::remove_all(folder / "out");
  }
}

TEST(ConvertAnything, NumbersBesideCodesKeepTheirDtype) {
  const checkpoint::ScratchFolder folder;
  write_model(folder / "model", {{.name = "w", .shape = {4, 4}, .dtype = checkpoint::Dtype::i8},
                                 {.name = "w.SCB", .shape = {4}, .dtype = checkpoint::Dtype::f32}});
  checkpoint::overwrite(folder / "model/config.json", R"({"quantization_config": {"load_in_8bit": true}})");
  for (const char* to : {"safetensors", "pth", "dcp"})
    EXPECT_THAT(refusal_of({.source = folder / "model", .out = folder / "out", .to = to, .dtype = "bfloat16"}),
                HasSubstr("are codes (quantization_config in its config.json)"))
        << to;
  EXPECT_EQ(refusal_of({.source = folder / "model", .out = folder / "out"}), "no error");
}

TEST(ConvertAnything, ADtypeThatIsNullIsNone) {
  const checkpoint::ScratchFolder folder;
  write_model(folder / "model", {{.name = "w", .shape = {4}, .dtype = checkpoint::Dtype::f32}});
  for (const char* config :
       {R"({"torch_dtype": null})", R"({"dtype": null, "torch_dtype": "float32"})", R"({"torch_dtype": 5})"}) {
    checkpoint::overwrite(folder / "model/config.json", config);
    EXPECT_EQ(refusal_of({.source = folder / "model", .out = folder / "out", .dtype = "bfloat16", .force = true}),
              "no error")
        << config;
    EXPECT_THAT(base::read_file(folder / "out/config.json"), HasSubstr(R"("torch_dtype": "bfloat16")")) << config;
  }
}

TEST(ConvertAnything, AConfigThatIsCutOffIsRefusedByName) {
  const checkpoint::ScratchFolder folder;
  write_model(folder / "model", {{.name = "w", .shape = {4}, .dtype = checkpoint::Dtype::f32}});
  checkpoint::overwrite(folder / "model/config.json", R"({"quantization_config": {)");
  for (const char* to : {"safetensors", "gguf", "pth", "dcp", "litgpt"})
    EXPECT_THAT(refusal_of({.source = folder / "model", .out = folder / "out", .to = to}),
                HasSubstr("model/config.json is not a JSON object"))
        << to;
  EXPECT_THAT(checkpoint::error_of(
                  [&] { checkpoint::rewrite(folder / "model", folder / "out", {.dtype = checkpoint::Dtype::bf16}); }),
              HasSubstr("config.json is not JSON"));
}

/// A torch.save of {"array": a numpy array, "epoch": 3} and tensors.
void write_numpy(const fs::path& path, const std::vector<checkpoint::TensorSpec>& tensors) {
  PickleWriter pickle;
  pickle.empty_dict().mark();
  pickle.text("array").global("numpy.core.multiarray", "_reconstruct");
  pickle.mark().global("numpy", "ndarray").integers(std::vector<int64_t>{0}).text("b").tuple().call();
  pickle.text("epoch").integer(3);
  for (size_t i = 0; i < tensors.size(); ++i) write_tensor(pickle.text(tensors[i].name), tensors[i], i);
  pickle.set_items();
  TorchArchiveWriter archive(pickle.finish(), tensors, 0);
  const base::FileDescriptor file = checkpoint::create_file(path, archive.bytes());
  const std::vector<std::byte> zeros(1024);
  for (size_t i = 0; i < tensors.size(); ++i)
    archive.write(file, path, i, tensors[i], 0, checkpoint::num_elements(tensors[i].shape), zeros.data(),
                  tensors[i].dtype);
  archive.finish(file, path);
}

TEST(ConvertAnything, WhatHoldsNoTensorsIsRefusedAndWhatIsLeftOutIsSaid) {
  const checkpoint::ScratchFolder folder;
  write_numpy(folder / "arrays.bin", {});
  EXPECT_THAT(refusal_of({.source = folder / "arrays.bin", .out = folder / "out"}),
              testing::AllOf(HasSubstr("holds no tensor"), HasSubstr("1 value"), HasSubstr("'array'")));
  write_model(folder / "empty", {});
  EXPECT_THAT(refusal_of({.source = folder / "empty", .out = folder / "out"}), HasSubstr("holds no "));
  EXPECT_FALSE(fs::exists(folder / "out"));
  write_numpy(folder / "both.bin", {{.name = "w", .shape = {2}, .dtype = checkpoint::Dtype::f32}});
  std::vector<std::string> notes;
  convert_checkpoint({.source = folder / "both.bin", .out = folder / "out", .note = [&](const std::string& line) {
                        notes.push_back(line);
                      }});
  EXPECT_THAT(notes, testing::Contains(HasSubstr("1 value of")));
  EXPECT_EQ(checkpoint::open_checkpoint(folder / "out").tensors.size(), 1u);
}

TEST(ConvertAnything, AFolderWithSafetensorsIsTheModelOfItsConfig) {
  const checkpoint::ScratchFolder folder;
  const model::ModelConfig config = tiny_llama();
  const std::vector<checkpoint::TensorSpec> all = tensors_of(config);
  const auto refusal = [&](const std::vector<checkpoint::TensorSpec>& tensors) {
    fs::remove_all(folder / "model");
    write_model(folder / "model", tensors);
    checkpoint::overwrite(folder / "model/config.json", config.to_hugging_face_json("float32"));
    return refusal_of({.source = folder / "model", .out = folder / "out", .force = true});
  };
  EXPECT_EQ(refusal(all), "no error");
  for (size_t i = 0; i < all.size(); ++i) {
    std::vector<checkpoint::TensorSpec> lost = all, other = all;
    lost.erase(lost.begin() + static_cast<std::ptrdiff_t>(i));
    other[i].shape.push_back(1);
    EXPECT_THAT(refusal(lost), testing::AllOf(HasSubstr("is not a whole model"), HasSubstr(all[i].name + "' [")));
    EXPECT_THAT(refusal(other), HasSubstr("tensor '" + all[i].name + "' has shape "));
    std::vector<checkpoint::TensorSpec> whole_numbers = all;
    whole_numbers[i].dtype = checkpoint::Dtype::i32;
    EXPECT_THAT(refusal(whole_numbers), HasSubstr("tensor '" + all[i].name + "' holds I32, no floating-point numbers"));
  }
  // As transformers' AutoModel saves a model: without its head, and without the names' prefix.
  std::vector<checkpoint::TensorSpec> headless = all;
  std::erase_if(headless, [](const checkpoint::TensorSpec& tensor) { return tensor.name == "lm_head.weight"; });
  for (checkpoint::TensorSpec& tensor : headless) tensor.name = tensor.name.substr(std::string("model.").size());
  EXPECT_EQ(refusal(headless), "no error");
  const auto with = [&](const std::string& name) {
    std::vector<checkpoint::TensorSpec> more = all;
    more.push_back({.name = name, .shape = {4}, .dtype = checkpoint::Dtype::f32});
    return refusal(more);
  };
  // What training refuses is refused here, and what it passes over is passed over.
  EXPECT_THAT(with("model.layers.0.self_attn.q_norm.weight"),
              HasSubstr("holds the tensor 'model.layers.0.self_attn.q_norm.weight', which this model does not use"));
  EXPECT_EQ(with("model.layers.0.self_attn.rotary_emb.inv_freq"), "no error");
  EXPECT_NO_THROW(check_model_folder(folder / "model"));
  with("model.layers.0.mlp.more.weight");
  EXPECT_THROW(check_model_folder(folder / "model"), CheckpointError);
}

TEST(ConvertAnything, AnotherHeadThanTheTiedOneIsNotLost) {
  const checkpoint::ScratchFolder folder;
  model::ModelConfig config = tiny_llama();
  const std::vector<checkpoint::TensorSpec> all = tensors_of(config);
  config.tie_word_embeddings = true;
  const ConvertRequest request{.source = folder / "model", .out = folder / "model.gguf", .force = true};
  for (const float first : {0.0F, 1.0F}) {
    fs::remove_all(folder / "model");
    fs::create_directories(folder / "model");
    checkpoint::SafetensorsSink sink(folder / "model", all, checkpoint::kDefaultShardBytes);
    for (size_t i = 0; i < all.size(); ++i) {
      std::vector<float> values(static_cast<size_t>(checkpoint::num_elements(all[i].shape)));
      if (all[i].name == "lm_head.weight") values[0] = first;
      sink.write(i, 0, std::ssize(values), reinterpret_cast<const std::byte*>(values.data()), all[i].dtype);
    }
    sink.finish();
    checkpoint::overwrite(folder / "model/config.json", config.to_hugging_face_json("float32"));
    const std::string refusal = refusal_of(request);
    if (first == 0)
      EXPECT_EQ(refusal, "no error");
    else
      EXPECT_THAT(refusal, HasSubstr("holds lm_head.weight with other values than model.embed_tokens.weight"));
  }
}

TEST(ConvertAnything, ForceReplacesModelsOnly) {
  const checkpoint::ScratchFolder folder;
  write_model(folder / "model", {{.name = "a", .shape = {3}, .dtype = checkpoint::Dtype::f32}});
  const auto refusal = [&](const fs::path& out) {
    return refusal_of({.source = folder / "model", .out = folder / out, .force = true});
  };
  fs::create_directories(folder / "project");
  checkpoint::overwrite(folder / "project/config.json", "{\"port\": 8080}");
  EXPECT_THAT(refusal("project"), HasSubstr("project is not replaced: it is a folder without a model"));
  EXPECT_EQ(refusal("out"), "no error");
  for (const char* mine : {"notes.md", "README.md", ".gitattributes", "tokenizer.model"}) {
    checkpoint::overwrite(folder / "out" / mine, "x");
    EXPECT_EQ(refusal("out"), "no error") << mine;  // the next one is written without them
  }
  checkpoint::overwrite(folder / "out/train.py", "x");
  EXPECT_THAT(refusal("out"), HasSubstr("out is not replaced: it holds train.py, which is no part of a model"));
  fs::remove(folder / "out/train.py");
  fs::create_directories(folder / "out/.git");
  EXPECT_THAT(refusal("out"), HasSubstr("it holds .git, which is no part of a model"));
  checkpoint::overwrite(folder / "note.pth", "my notes");
  EXPECT_THAT(refusal("note.pth"), HasSubstr("note.pth is not replaced: it is no pth file"));
  EXPECT_EQ(base::read_file(folder / "note.pth"), "my notes");
  checkpoint::overwrite(folder / "empty.pth", "");
  EXPECT_EQ(refusal("empty.pth"), "no error");
  EXPECT_EQ(refusal("empty.pth"), "no error");  // a model now
}

TEST(ConvertAnything, NamesBehindAPrefixLoseItInAFolderWithSafetensorsToo) {
  const checkpoint::ScratchFolder folder;
  const model::ModelConfig config = tiny_llama();
  for (const std::string prefix : {"module.", "_orig_mod.", "module._orig_mod.", "model."}) {
    fs::remove_all(folder / "model");
    write_model(folder / "model", tensors_of(config, prefix));
    checkpoint::overwrite(folder / "model/config.json", config.to_hugging_face_json("float32"));
    std::vector<std::string> notes;
    convert_checkpoint(
        {.source = folder / "model", .out = folder / "out", .force = true, .note = [&](const std::string& line) {
           notes.push_back(line);
         }});
    EXPECT_THAT(notes, testing::Contains(prefix + " is taken off the names of all tensors"));
    const checkpoint::Checkpoint out = checkpoint::open_checkpoint(folder / "out");
    for (const checkpoint::TensorSpec& tensor : tensors_of(config)) EXPECT_TRUE(out.has_tensor(tensor.name)) << prefix;
  }
}

TEST(ConvertAnything, OptimizerStateThatIsLeftOutIsCountedInGoodEnglish) {
  const checkpoint::ScratchFolder folder;
  const fs::path one = checkpoint::save_sample(folder.path(), 1, 1);
  std::vector<std::string> notes;
  convert_checkpoint(
      {.source = one, .out = folder / "out", .note = [&](const std::string& line) { notes.push_back(line); }});
  EXPECT_THAT(notes, testing::Contains(HasSubstr("1 file of optimizer state is left out")));
}

TEST(ConvertAnything, ARunsFolderWithoutAGoodCheckpointIsRefusedWithTheReason) {
  const checkpoint::ScratchFolder folder;
  for (const int64_t step : {1, 2}) {
    const fs::path saved = checkpoint::save_sample(folder / "run", step, 1);
    if (step == 2) checkpoint::mark_ruined(saved, "the loss was nan");
  }
  testing::internal::CaptureStderr();
  EXPECT_EQ(refusal_of({.source = folder / "run", .out = folder / "out"}), "no error");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("run/step-00000002: it is marked as ruined: the loss was nan"));
  EXPECT_EQ(said.find("passed over"), said.rfind("passed over")) << said;
  checkpoint::mark_ruined(folder / "run/step-00000001", "the loss was 1e9");
  EXPECT_THAT(refusal_of({.source = folder / "run", .out = folder / "other"}),
              testing::AllOf(HasSubstr("none of the 2 checkpoints in it is good"), HasSubstr("the loss was nan")));
}

TEST(ConvertAnything, ARuinedCheckpointThatIsNamedIsReadWithAWarning) {
  const checkpoint::ScratchFolder folder;
  const fs::path saved = checkpoint::save_sample(folder / "run", 1, 1);
  checkpoint::mark_ruined(saved, "the loss was nan");
  const auto said_of = [](const auto& work) {
    testing::internal::CaptureStderr();
    work();
    return testing::internal::GetCapturedStderr();
  };
  const std::string warning = saved.string() + " is not good: it is marked as ruined: the loss was nan";
  EXPECT_THAT(said_of([&] { convert_checkpoint({.source = saved, .out = folder / "out"}); }), HasSubstr(warning));
  EXPECT_THAT(said_of([&] { convert_checkpoint({.source = saved, .out = folder / "again"}); }),
              testing::Not(HasSubstr(warning)))
      << "once in a process";
}

TEST(ConvertAnything, SizesThatOverflowAreRefused) {
  const int64_t half = int64_t{1} << 57;
  EXPECT_EQ(checkpoint::tensor_bytes(std::vector<int64_t>{half, 2}, checkpoint::Dtype::f64), int64_t{1} << 61);
  EXPECT_THROW(checkpoint::tensor_bytes(std::vector<int64_t>{half, 3}, checkpoint::Dtype::f64), ShapeError);
  EXPECT_EQ(checkpoint::tensor_bytes(std::vector<int64_t>{0, half, half}, checkpoint::Dtype::f64), 0);
  // A tensor without elements may say any other sizes, whose product overflows in strides and rows.
  const checkpoint::ScratchFolder folder;
  write_model(folder / "model", {{.name = "none", .shape = {0, half, half, half}, .dtype = checkpoint::Dtype::f32},
                                 {.name = "a", .shape = {2}, .dtype = checkpoint::Dtype::f32}});
  EXPECT_EQ(refusal_of({.source = folder / "model", .out = folder / "out.pth"}),
            "the shape [144115188075855872, 144115188075855872, 144115188075855872] has more than 2^58 elements");
  // Tensors that are each small enough, and together are not.
  std::vector<checkpoint::TensorSpec> huge;
  for (int i = 0; i < 40; ++i)
    huge.push_back({.name = std::to_string(i), .shape = {half}, .dtype = checkpoint::Dtype::f64});
  EXPECT_THROW(checkpoint::SafetensorsSink(folder / "model", huge, int64_t{1} << 62), CheckpointError);
}

// A distributed checkpoint whose metadata say more than its files hold.
TEST(ConvertAnything, ASourceThatClaimsMoreThanItsFilesHoldIsRefused) {
  const checkpoint::ScratchFolder folder;
  fs::create_directories(folder / "model");
  std::vector<checkpoint::TensorSpec> tensors;
  for (int i = 0; i < 5; ++i)
    tensors.push_back({.name = std::to_string(i), .shape = {1, 1}, .dtype = checkpoint::Dtype::f64});
  DcpSink(folder / "model", tensors).finish();
  const fs::path path = folder / "model" / kDcpMetadataName;
  std::string metadata = base::read_file(path);
  const auto shape = [](int64_t size) { return PickleWriter().integer(size).integer(size).finish().substr(2, 10); };
  const std::string one = shape(1), huge = shape(1 << 28);
  ASSERT_NE(metadata.find(one), std::string::npos);
  for (auto at = metadata.find(one); at != std::string::npos; at = metadata.find(one, at))
    metadata.replace(at, 10, huge);
  checkpoint::overwrite(path, metadata);
  EXPECT_THAT(refusal_of({.source = folder / "model", .out = folder / "out", .to = "pth"}),
              HasSubstr("tensor '0' [268435456, 268435456] has a chunk of 72057594037927936 elements in"));
}

}  // namespace
}  // namespace trireme::formats
