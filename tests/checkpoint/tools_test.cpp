// list, verify, diff, reshard and consolidate, on checkpoints of ours and on folders of anybody's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "fixtures.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/diff.h"
#include "trireme/checkpoint/inspect.h"
#include "trireme/checkpoint/rewrite.h"
#include "trireme/checkpoint/verify.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Difference = TensorDiff::Kind;

void flip_in(const fs::path& file, size_t position) {
  std::string bytes = folder_contents(file.parent_path()).at(file.filename().string());
  bytes.at(position) = static_cast<char>(bytes[position] ^ 4);
  overwrite(file, bytes);
}

void make_plain(const fs::path& folder) {
  for (const char* name : {"manifest.json", "trireme_state.json"}) fs::remove(folder / name);
}

TEST(List, TellsCheckpointsAndModelsApartAndNamesWhatIsMissing) {
  const ScratchFolder out;
  for (const int64_t step : {1, 2, 3}) save_sample(out.path(), step, 1);
  make_plain(out / "step-00000002");
  fs::remove(out / "step-00000001/model.safetensors");
  const std::vector<FolderInfo> all = list_checkpoints(out.path());
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].step, 3);
  EXPECT_EQ(all[0].verdict.problem, "");
  EXPECT_TRUE(all[0].ours);
  EXPECT_EQ(all[0].model_tensors, 6);
  EXPECT_EQ(all[0].optimizer_tensors, 18);
  EXPECT_EQ(all[0].dtypes, "BF16 F16 F32");
  EXPECT_GT(all[0].bytes, 10'000);
  EXPECT_FALSE(all[1].ours);
  EXPECT_THAT(all[2].verdict.problem, HasSubstr("model.safetensors is missing"));
  EXPECT_EQ(list_checkpoints(out / "step-00000003").size(), 1u);
  EXPECT_THAT(error_of<Error>([&] { list_checkpoints(out / "step-00000009"); }), HasSubstr("there is no folder"));
  fs::create_directories(out / "empty");
  EXPECT_THAT(error_of<Error>([&] { list_checkpoints(out / "empty"); }), HasSubstr("holds no checkpoint"));
}

TEST(Verify, NamesFileAndTensorsOfEveryDamagedBlockOnAnyNumberOfThreads) {
  const ScratchFolder out;
  const fs::path path = save_sample(out.path(), 2, 2, 3000);  // several blocks
  EXPECT_TRUE(verify(path).problems.empty());
  flip_in(path / "model.safetensors", (1 << 20) + 5);
  flip_in(path / "model.safetensors", (4 << 20) + 5);
  flip_in(path / "config.json", 3);
  for (const int threads : {1, 2, 5}) {
    int64_t done = 0, total = 0;
    const VerifyReport report =
        verify(path, {.threads = threads, .progress = [&](int64_t d, int64_t t) { done = d, total = t; }});
    EXPECT_THAT(report.problems,
                testing::ElementsAre(HasSubstr("config.json, block 0"),
                                     testing::AllOf(HasSubstr("model.safetensors, block 1 "),
                                                    HasSubstr("(it holds tensor 'model.embed_tokens.weight')")),
                                     HasSubstr("model.safetensors, block 4 ")));
    EXPECT_EQ(done, total);
    EXPECT_EQ(total, report.bytes);
  }
}

TEST(Verify, AFolderWithoutAManifestHasSoundHeadersAndNothingMore) {
  const ScratchFolder out;
  const fs::path path = save_sample(out.path(), 2, 1);
  make_plain(path);
  const VerifyReport report = verify(path);
  EXPECT_FALSE(report.has_manifest);
  EXPECT_TRUE(report.problems.empty());
  overwrite(path / "model.safetensors", "not one");
  EXPECT_FALSE(verify(path).problems.empty());
}

TEST(Diff, OfTheSameTensorsInOtherFilesIsEmpty) {
  const ScratchFolder out;
  const fs::path a = save_sample(out / "a", 4, 1, 40),
                 b = save_sample(out / "b", 4, 3, 40, [](int, SaveRequest& r) { r.max_shard_bytes = 4000; });
  const DiffReport report = diff(a, b);
  EXPECT_TRUE(report.equal());
  EXPECT_EQ(report.count(Difference::equal), 24);
}

TEST(Diff, GivesLargestAndRmsDifferenceByHand) {
  const ScratchFolder out;
  const fs::path a = save_sample(out / "a", 4, 1, 40), b = save_sample(out / "b", 5, 1, 40);
  const DiffReport report = diff(a, b, 2);
  EXPECT_FALSE(report.equal());
  const auto find = [&](const std::string& name) -> const TensorDiff& {
    return *std::find_if(report.tensors.begin(), report.tensors.end(), [&](const auto& t) { return t.name == name; });
  };
  const std::string name = "model.embed_tokens.weight";
  double largest = 0, squares = 0, own = 0;
  const int64_t elements = 37 * 40 * 24;
  for (int64_t i = 0; i < elements; ++i) {
    const double x = sample_value(name, i, 4), d = std::abs(x - sample_value(name, i, 5));
    largest = std::max(largest, d), squares += d * d, own += x * x;
  }
  EXPECT_EQ(find(name).kind, Difference::values);
  EXPECT_EQ(find(name).max_difference, largest);
  EXPECT_NEAR(find(name).rms_difference, std::sqrt(squares / static_cast<double>(elements)), 1e-12);
  EXPECT_NEAR(find(name).rms, std::sqrt(own / static_cast<double>(elements)), 1e-12);
  EXPECT_EQ(find("model.layers.1.none").kind, Difference::equal) << "no elements, no difference";
}

TEST(Diff, NamesWhatOnlyOneHasOtherShapesAndOtherDtypes) {
  const ScratchFolder out;
  const fs::path a = save_sample(out / "a", 4, 1, 1), b = save_sample(out / "b", 4, 1, 2);
  rewrite(a, out / "weights", {.dtype = Dtype::f32, .weights_only = true});
  EXPECT_EQ(diff(a, b).count(Difference::shape), 4) << "the embedding, its master and its moments";
  const DiffReport weights = diff(a, out / "weights");
  EXPECT_EQ(weights.count(Difference::only_a), 18);
  EXPECT_EQ(weights.count(Difference::only_b), 0);
  EXPECT_EQ(weights.count(Difference::equal), 3) << "those that were fp32 before";
  EXPECT_EQ(weights.count(Difference::values), 3) << "widened from the masters, which are other numbers in this sample";
}

TEST(Rewrite, OtherFileSizesGiveTheSameTensorsVerified) {
  const ScratchFolder out;
  const fs::path a = save_sample(out / "a", 4, 2, 3000);
  const fs::path b = rewrite(a, out / "b", {.max_shard_bytes = 1'000'000}).path;
  EXPECT_EQ(b, out / "b");
  EXPECT_FALSE(fs::exists(b / "model.safetensors"));
  EXPECT_TRUE(fs::exists(b / "model.safetensors.index.json"));
  EXPECT_TRUE(diff(a, b).equal());
  EXPECT_TRUE(verify(b).problems.empty());
  EXPECT_EQ(open_checkpoint(b).step, 4);
  EXPECT_EQ(folder_contents(b).at("settings.yaml"), "seed: 42\n");
  EXPECT_EQ(open_checkpoint(b).state_json, open_checkpoint(a).state_json);
  const fs::path c = rewrite(b, out / "c/", {}).path;
  EXPECT_TRUE(fs::exists(c / "model.safetensors"));
  EXPECT_TRUE(diff(a, c).equal()) << "there and back";
  EXPECT_TRUE(verify(c).problems.empty());
}

TEST(Rewrite, WiderWeightsComeFromTheMasters) {
  const ScratchFolder out;
  const fs::path a = save_sample(out / "a", 4, 1, 1, [](int, SaveRequest& r) {
    r.config_json = R"({"model_type": "llama", "torch_dtype": "bfloat16"})";
    for (Piece& piece : r.pieces)  // masters that bf16 does not hold
      if (piece.tensor == "model.layers.0.mlp.up_proj.weight.master")
        for (int64_t i = 0; i < piece.end - piece.begin; ++i)
          const_cast<float*>(static_cast<const float*>(piece.data))[i] += 1e-4f;
  });
  const Checkpoint wide = open_checkpoint(rewrite(a, out / "b", {.dtype = Dtype::f32, .weights_only = true}).path);
  float value = 0;
  const PieceRequest piece{.tensor = "model.layers.0.mlp.up_proj.weight", .begin = 7, .end = 8, .data = &value};
  read_pieces(wide, {&piece, 1});
  EXPECT_EQ(value, sample_value("model.layers.0.mlp.up_proj.weight.master", 7, 4) + 1e-4f);
  EXPECT_EQ(nlohmann::json::parse(read_text(wide, "config.json"))["torch_dtype"], "float32");
}

TEST(Rewrite, AFrozenWeightKeepsItsBitsForARunThatGoesOn) {
  const ScratchFolder out;
  const std::string frozen = "model.norm.weight";
  const fs::path a = save_sample(out / "a", 4, 1, 1, [&](int, SaveRequest& r) {
    std::erase_if(r.optimizer, [&](const TensorSpec& spec) { return spec.name.starts_with(frozen); });
    std::erase_if(r.pieces, [&](const Piece& piece) { return piece.tensor.starts_with(frozen + "."); });
  });
  const Checkpoint narrow = open_checkpoint(rewrite(a, out / "b", {.dtype = Dtype::bf16}).path);
  EXPECT_EQ(narrow.tensor(frozen).dtype, Dtype::bf16);
  ASSERT_TRUE(narrow.has_tensor(frozen + ".master"));
  EXPECT_EQ(narrow.tensor(frozen + ".master").dtype, Dtype::f32);
  float value = 0;
  const PieceRequest piece{.tensor = frozen + ".master", .begin = 7, .end = 8, .data = &value};
  read_pieces(narrow, {&piece, 1});
  EXPECT_EQ(value, sample_value(frozen, 7, 4));
  EXPECT_TRUE(verify(out / "b").problems.empty());
  for (const auto& [folder, options] : {std::pair("c", RewriteOptions{.dtype = Dtype::bf16, .weights_only = true}),
                                        std::pair("d", RewriteOptions{.dtype = Dtype::f32})})
    EXPECT_FALSE(open_checkpoint(rewrite(a, out / folder, options).path).has_tensor(frozen + ".master")) << folder;
}

TEST(Rewrite, ValuesThatFloat16CannotHoldAreRefused) {
  const ScratchFolder out;
  const auto save_with = [&](const std::string& name, float value) {
    return save_sample(out / name, 4, 1, 1, [value](int, SaveRequest& r) {
      for (Piece& piece : r.pieces)
        if (piece.tensor == "model.norm.weight") const_cast<float*>(static_cast<const float*>(piece.data))[0] = value;
    });
  };
  const fs::path large = save_with("large", -1e5f), infinite = save_with("infinite", INFINITY);
  for (const bool weights_only : {false, true})
    EXPECT_THAT(error_of([&] { rewrite(large, out / "b", {.dtype = Dtype::f16, .weights_only = weights_only}); }),
                HasSubstr("tensor 'model.norm.weight' holds values beyond 65504, the largest of float16"));
  EXPECT_FALSE(fs::exists(out / "b"));
  rewrite(large, out / "c", {.dtype = Dtype::bf16});
  rewrite(infinite, out / "d", {.dtype = Dtype::f16});  // no value becomes infinite
}

TEST(Rewrite, NumbersBesideCodesKeepTheirDtype) {
  const ScratchFolder out;
  const auto save_with = [&](const std::string& quantization) {
    return save_sample(out / quantization, 4, 1, 1, [&](int, SaveRequest& r) {
      r.config_json = R"({"quantization_config": {"quant_method": ")" + quantization + "\"}}";
    });
  };
  const fs::path codes = save_with("bitsandbytes"), blocks = save_with("gguf");
  EXPECT_THAT(error_of<UsageError>([&] { rewrite(codes, out / "b", {.dtype = Dtype::bf16}); }),
              HasSubstr("are codes (quantization_config in its config.json)"));
  EXPECT_FALSE(fs::exists(out / "b"));
  EXPECT_TRUE(diff(codes, rewrite(codes, out / "c", {}).path).equal());
  const Checkpoint wide = open_checkpoint(rewrite(blocks, out / "d", {.dtype = Dtype::f32}).path);
  EXPECT_EQ(wide.tensor("model.embed_tokens.weight").dtype, Dtype::f32) << "nothing lies beside GGUF's blocks";
}

TEST(Rewrite, ConsolidatedHoldsTheWeightsAndSideFilesAlone) {
  const ScratchFolder out;
  const fs::path a = save_sample(out / "a", 4, 2, 40, [](int, SaveRequest& r) {
    r.max_shard_bytes = 4000;
    r.extra_files["tokenizer.json"] = "{}";
  });
  const fs::path b = rewrite(a, out / "b", {.weights_only = true}).path;
  std::vector<std::string> names;
  for (const auto& [name, bytes] : folder_contents(b)) names.push_back(name);
  EXPECT_THAT(names, testing::ElementsAre("config.json", "generation_config.json", "manifest.json", "model.safetensors",
                                          "settings.yaml", "tokenizer.json"));
  EXPECT_EQ(open_checkpoint(b).tensors.size(), 6u);
  EXPECT_EQ(diff(a, b).count(Difference::equal), 6);
}

TEST(Rewrite, DamageIsRefusedAndLeavesNothing) {
  const ScratchFolder out;
  const fs::path a = save_sample(out / "a", 4, 1, 3000);
  flip_in(a / "model.safetensors", (1 << 20) + 5);
  EXPECT_THAT(error_of<Error>([&] { rewrite(a, out / "b", {}); }),
              testing::AllOf(HasSubstr("model.safetensors, block 1"), HasSubstr("model.embed_tokens.weight")));
  EXPECT_THAT(error_of<Error>([&] { rewrite(a, out / "a", {}); }), HasSubstr("exists already"));
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(out.path())) left.push_back(entry.path().filename());
  EXPECT_THAT(left, testing::ElementsAre("a"));
}

}  // namespace
}  // namespace trireme::checkpoint
