#include "trireme/checkpoint/load.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <new>
#include <random>
#include <thread>

#include "fixtures.h"
#include "thread_ranks.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/checkpoint/foreign_weights.h"
#include "trireme/checkpoint/layout.h"
#include "trireme/checkpoint/verify.h"
#include "trireme/checkpoint/window_reader.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

TEST(Load, AnyNumberOfRanksReadsWhatAnyOtherWrote) {
  const ScratchFolder out;
  const fs::path path = save_sample(out.path(), 12, 3, 400);
  for (const int readers : {1, 2, 4}) {
    int64_t elements = 0;
    for (int rank = 0; rank < readers; ++rank) {
      const Checkpoint checkpoint = open_checkpoint(path);
      SamplePieces expected(sample_tensors(400), 12, rank, readers, 99);  // other cuts than at the save
      std::vector<std::vector<float>> memory;
      std::vector<PieceRequest> requests;
      for (const Piece& piece : expected.pieces) {
        memory.emplace_back(static_cast<size_t>(piece.end - piece.begin));
        requests.push_back({.tensor = piece.tensor,
                            .begin = piece.begin,
                            .end = piece.end,
                            .data = memory.back().data(),
                            .dtype = Dtype::f32});
        elements += piece.end - piece.begin;
      }
      for (const PageCache cache : {PageCache::use, PageCache::bypass}) {
        for (auto& values : memory) std::fill(values.begin(), values.end(), -1.0F);
        read_pieces(checkpoint, requests, cache);
        EXPECT_EQ(memory, expected.memory) << "rank " << rank << " of " << readers;
      }
    }
    int64_t all = 0;
    for (const TensorSpec& tensor : sample_tensors(400)) all += num_elements(tensor.shape);
    EXPECT_EQ(elements, all);
  }
}

TEST(Load, MemoryMayHaveAnyFloatDtype) {
  const ScratchFolder out;
  const Checkpoint checkpoint = open_checkpoint(save_sample(out.path(), 1, 1));
  const std::string name = "model.layers.0.mlp.up_proj.weight.master";
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16}) {
    std::vector<std::byte> memory(100 * static_cast<size_t>(size_of(dtype)));
    const PieceRequest request{.tensor = name, .begin = 11, .end = 111, .data = memory.data(), .dtype = dtype};
    read_pieces(checkpoint, {&request, 1});
    std::vector<double> values(100);
    convert(memory.data(), dtype, values.data(), Dtype::f64, 100);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(values[i], sample_value(name, 11 + i, 1));
  }
}

TEST(Load, ThreadsMayReadTheSameCheckpoint) {
  const ScratchFolder out;
  const Checkpoint checkpoint = open_checkpoint(save_sample(out.path(), 1, 2, 400));
  const std::string name = "model.embed_tokens.weight.exp_avg";
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<float> values(100'000);
      const PieceRequest request{
          .tensor = name, .begin = t * 50'000, .end = t * 50'000 + 100'000, .data = values.data(), .dtype = Dtype::f32};
      read_pieces(checkpoint, {&request, 1});
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(values[i], sample_value(name, t * 50'000 + static_cast<int64_t>(i), 1));
    });
  }
}

TEST(Load, WrongRequestsAreRefusedBeforeAnythingIsRead) {
  const ScratchFolder out;
  const Checkpoint checkpoint = open_checkpoint(save_sample(out.path(), 1, 1));
  float value = -1;
  const auto refused = [&](PieceRequest request) {
    request.data = &value;
    const std::string error = error_of([&] { read_pieces(checkpoint, {&request, 1}); });
    EXPECT_EQ(value, -1);
    return error;
  };
  EXPECT_THAT(refused({.tensor = "model.norm.weigth", .begin = 0, .end = 1}),
              HasSubstr("nearest name is 'model.norm.weight'"));
  EXPECT_THAT(refused({.tensor = "model.norm.weight", .begin = 0, .end = 24}), HasSubstr("its shape is [23]"));
  EXPECT_THAT(refused({.tensor = "model.norm.weight", .begin = -1, .end = 1}), HasSubstr("elements -1 to 1"));
  EXPECT_THAT(refused({.tensor = "model.norm.weight", .begin = 0, .end = 1, .data = nullptr, .dtype = Dtype::i32}),
              HasSubstr("cannot be read as I32"));
}

TEST(Load, AnotherModelsShapesAreRefused) {
  const ScratchFolder out;
  const Checkpoint checkpoint = open_checkpoint(save_sample(out.path(), 1, 1));
  std::vector<TensorSpec> model = sample_model();
  check_tensors(checkpoint, model);
  model[1].shape = {64, 24};
  EXPECT_THAT(error_of([&] { check_tensors(checkpoint, model); }),
              HasSubstr("has shape [65, 24], the model's is [64, 24]; "));
  model[0].name = "model.other";
  EXPECT_THAT(error_of([&] { check_tensors(checkpoint, model); }),
              HasSubstr("'model.other' of shape [37, 24] is missing (and 1 more differ)"));
}

TEST(Load, PathsThatAreNoCheckpointsAreExplained) {
  const ScratchFolder out;
  save_sample(out.path(), 4, 1);
  EXPECT_THAT(error_of([&] { open_checkpoint(out / "nowhere"); }), HasSubstr("no such folder"));
  EXPECT_THAT(error_of([&] { open_checkpoint(out.path()); }),
              HasSubstr("its newest good checkpoint is " + (out / "step-00000004").string()));
  EXPECT_THAT(error_of([&] { open_checkpoint(out / "step-00000004/config.json"); }),
              HasSubstr("config.json is one file of a model's folder: name the folder"));
  EXPECT_EQ(open_checkpoint((out / "step-00000004/").string()).path, out / "step-00000004");
  std::ofstream(out / kRunFile) << "{}";
  EXPECT_THAT(error_of([&] { open_checkpoint(out.path()); }), HasSubstr("its newest good checkpoint is"));
  fs::remove_all(out / "step-00000004");
  EXPECT_THAT(
      error_of([&] { open_checkpoint(out.path()); }),
      HasSubstr("is the folder of a run that has saved no checkpoint yet; start it again with its own command"));
  std::ofstream(out / ".lock") << R"({"pid": 1, "host": "node1"})";
  const base::FileDescriptor held = base::open_file(out / ".lock", O_RDONLY);
  ASSERT_EQ(flock(held.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_THAT(error_of([&] { open_checkpoint(out.path()); }),
              HasSubstr("has saved no checkpoint yet, and still runs (process 1 on node1); wait for its first save"));
}

TEST(Load, AFolderOfHuggingFaceNeedsNoManifest) {
  const ScratchFolder out;
  const fs::path one = save_sample(out / "one", 4, 1);
  const fs::path many =
      save_sample(out / "many", 4, 1, 1, [](int, SaveRequest& request) { request.max_shard_bytes = 3000; });
  for (const fs::path& path : {one, many}) {
    fs::remove(path / "manifest.json");
    fs::remove(path / "trireme_state.json");
    const Checkpoint checkpoint = open_checkpoint(path);
    EXPECT_FALSE(checkpoint.has_manifest);
    EXPECT_EQ(checkpoint.state_json, "{}");
    EXPECT_EQ(checkpoint.tensors.size(), sample_model().size()) << "the optimizer's files are not weights";
    std::vector<float> values(23);
    const PieceRequest request{
        .tensor = "model.norm.weight", .begin = 0, .end = 23, .data = values.data(), .dtype = Dtype::f32};
    read_pieces(checkpoint, {&request, 1});
    for (int i = 0; i < 23; ++i) EXPECT_EQ(values[i], sample_value("model.norm.weight", i, 4));
    EXPECT_EQ(read_text(checkpoint, "settings.yaml"), "seed: 42\n");
    EXPECT_FALSE(verify(path).has_manifest);
  }
  fs::remove(many / "model-00002-of-00003.safetensors");
  EXPECT_THAT(error_of([&] { open_checkpoint(many); }), HasSubstr("model-00002-of-00003.safetensors is missing"));
  overwrite(many / "model.safetensors.index.json", R"({"weight_map": {"a": "../one/model.safetensors"}})");
  EXPECT_THAT(error_of([&] { open_checkpoint(many); }), HasSubstr("no file of the same folder"));
  fs::remove(many / "model.safetensors.index.json");
  EXPECT_THAT(error_of([&] { open_checkpoint(many); }), HasSubstr("model-00002-of-00003.safetensors is missing"));
}

// transformers reads model.safetensors, and the files of the index are older or newer.
TEST(Load, AModelInOneFileBesideAnIndexOfOthersIsRefused) {
  const ScratchFolder out;
  const fs::path one = save_sample(out / "one", 4, 1);
  const fs::path many =
      save_sample(out / "many", 4, 1, 1, [](int, SaveRequest& request) { request.max_shard_bytes = 3000; });
  fs::copy_file(one / "model.safetensors", many / "model.safetensors");
  const std::string problem = many.string() +
                              " holds model.safetensors and an index of other files (model.safetensors.index.json): "
                              "transformers reads model.safetensors; move one of them away";
  EXPECT_THAT(error_of([&] { open_checkpoint(many); }), HasSubstr(problem));
  for (const char* name : {"manifest.json", "trireme_state.json"}) fs::remove(many / name);
  EXPECT_THAT(error_of([&] { open_checkpoint(many); }), HasSubstr(problem));
  overwrite(many / "model.safetensors.index.json", R"({"weight_map": {"model.norm.weight": "model.safetensors"}})");
  EXPECT_EQ(open_checkpoint(many).tensors.size(), sample_model().size());
}

TEST(Load, MisalignedForeignTensorsAreRead) {
  // Other writers neither pad headers nor sort by alignment: elements may straddle blocks.
  const ScratchFolder out;
  const int64_t count = 2 * WindowReader::kBytes / 8 + 100;
  std::string json = R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"F64","shape":[)" +
                     std::to_string(count) + R"(],"data_offsets":[3,)" + std::to_string(3 + 8 * count) + "]}}";
  const uint64_t length = json.size();
  std::string file(reinterpret_cast<const char*>(&length), 8);
  file += json + "abc";
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(i) / 4);
  file.append(reinterpret_cast<const char*>(values.data()), static_cast<size_t>(8 * count));
  overwrite(out / "model.safetensors", file);
  const Checkpoint checkpoint = open_checkpoint(out.path());
  const auto check = [&](const auto& read_request) {
    std::vector<float> read(static_cast<size_t>(count));
    read_request(PieceRequest{.tensor = "b", .begin = 0, .end = count, .data = read.data(), .dtype = Dtype::f32});
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(read[i], static_cast<float>(i) / 4);
  };
  check([&](const PieceRequest& r) { read_pieces(checkpoint, {&r, 1}); });
  check([&](const PieceRequest& r) { read_pieces(checkpoint, {&r, 1}, PageCache::bypass); });
  check([&](const PieceRequest& r) { read_piece(checkpoint, r); });
}

TEST(Load, PiecesMayOverlap) {
  const ScratchFolder out;
  const Checkpoint checkpoint = open_checkpoint(save_sample(out.path(), 4, 1, 4000));
  const std::string name = "model.embed_tokens.weight";
  const int64_t elements = checkpoint.tensor(name).elements;
  ASSERT_GT(elements * 2, WindowReader::kBytes) << "so that pieces reach over windows";
  std::mt19937_64 random(3);
  std::vector<std::vector<float>> memory;
  std::vector<PieceRequest> requests;
  for (int i = 0; i < 40; ++i) {
    const auto one = static_cast<int64_t>(random() % static_cast<uint64_t>(elements)),
               other = i == 0 ? 0 : static_cast<int64_t>(random() % static_cast<uint64_t>(elements));
    const int64_t begin = std::min(one, other), end = i == 0 ? elements : std::max(one, other);
    memory.emplace_back(static_cast<size_t>(end - begin));
    requests.push_back({name, begin, end, memory.back().data(), Dtype::f32});
  }
  read_pieces(checkpoint, requests);
  for (size_t i = 0; i < requests.size(); ++i)
    for (int64_t e = requests[i].begin; e < requests[i].end; e += 997)
      ASSERT_EQ(memory[i][static_cast<size_t>(e - requests[i].begin)], sample_value(name, e, 4)) << "piece " << i;
}

TEST(Load, AFolderThatIsRenamedAndDeletedMeanwhileIsReadToItsEnd) {
  for (const PageCache cache : {PageCache::use, PageCache::bypass}) {
    const ScratchFolder out;
    const Checkpoint checkpoint = open_checkpoint(save_sample(out.path(), 4, 1, 400));
    remove_checkpoint(checkpoint.path);
    ASSERT_TRUE(fs::is_empty(out.path()));
    for (const TensorSpec& tensor : sample_tensors(400)) {
      std::vector<float> values(static_cast<size_t>(num_elements(tensor.shape)));
      const PieceRequest request{tensor.name, 0, static_cast<int64_t>(values.size()), values.data(), Dtype::f32};
      read_pieces(checkpoint, {&request, 1}, cache);
      for (size_t i = 0; i < values.size(); i += 101)
        ASSERT_EQ(values[i], sample_value(tensor.name, static_cast<int64_t>(i), 4)) << tensor.name;
    }
  }
}

TEST(Load, WeightsOfAnotherProgramAreNamedWithTheWayToReadThem) {
  const auto advice = [](const std::vector<std::string>& files, const std::string& below = "") {
    const ScratchFolder scratch;
    for (const std::string& file : files) {
      fs::create_directories((scratch / file).parent_path());
      std::ofstream(scratch / file) << "x";
    }
    std::string text = advice_on_foreign_weights(below.empty() ? scratch.path() : scratch / below);
    const std::string path = scratch.path().string();
    for (size_t at = text.find(path); at != std::string::npos; at = text.find(path)) text.replace(at, path.size(), "F");
    return text;
  };
  EXPECT_EQ(advice({"config.json", "training_args.bin", "optimizer.pt", "rng_state_0.pth"}), "");
  EXPECT_EQ(advice({"model.safetensors", "pytorch_model.bin"}), "");
  for (const char* name : {".metadata", "lit_model.pth", "pytorch_model.bin", "pytorch_model.bin.index.json"})
    EXPECT_THAT(advice({"config.json", name}),
                AllOf(HasSubstr(fmt::format("its weights in {}, which", name)), HasSubstr("convert F OUT")));
  for (const char* name : {"a.gguf", "consolidated.00.pth", "model.pt", "pytorch_model_fsdp.bin"})
    EXPECT_THAT(advice({"config.json", name}), HasSubstr(fmt::format("convert F/{} OUT, and name OUT", name)));
  EXPECT_THAT(advice({"pytorch_model_fsdp_0/.metadata"}), HasSubstr("convert F/pytorch_model_fsdp_0 OUT"));
  const std::vector<std::string> deepspeed = {"latest", "rng_state_0.pth", "global_step5/mp_rank_00_model_states.pt"};
  for (const char* below : {"", "global_step5", "global_step5/"})
    EXPECT_THAT(advice(deepspeed, below), HasSubstr("F/zero_to_fp32.py F")) << below;
  EXPECT_THAT(advice({"tf_model.h5"}), HasSubstr("save_pretrained"));
}

TEST(Load, ADamagedRankStopsAllRanksInAgree) {
  const ScratchFolder out;
  std::mutex mutex;
  std::vector<std::string> errors;
  run_ranks(3, [&](comm::Communicator& world) {
    const std::string error = error_of([&] {
      agree(world, [&] {
        if (world.rank() == 1) throw CheckpointError("block 3 is bad", "p", "t");
      });
    });
    const std::lock_guard lock(mutex);
    errors.push_back(error);
  });
  EXPECT_THAT(errors, testing::Each("rank 1: block 3 is bad"));
}

// What a rank throws and its peers have of it.
template <typename Thrown>
void expect_on_all_ranks(const std::function<void()>& fail, const std::function<bool(const Thrown&, int rank)>& holds) {
  std::atomic<int> seen = 0;
  run_ranks(3, [&](comm::Communicator& world) {
    try {
      agree(world, [&] {
        if (world.rank() == 1) fail();
      });
    } catch (const Thrown& error) {
      EXPECT_THAT(error.what(), testing::StartsWith("rank 1: "));
      if (holds(error, world.rank())) ++seen;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "another kind: " << error.what();
    }
  });
  EXPECT_EQ(seen, 3);
}

TEST(Load, AnErrorKeepsItsKindOnAllRanks) {
  const auto refused = [](const UsageError& error, int) {
    return dynamic_cast<const base::FileError*>(&error) == nullptr;
  };
  expect_on_all_ranks<UsageError>([] { throw UsageError("no such template"); }, refused);
  const auto of_file = [](const base::FileError& error, int) { return error.path == "a" && error.code == EIO; };
  expect_on_all_ranks<base::FileError>([] { base::throw_file_error("read", "a", EIO); }, of_file);
  const auto of_folder = [](const base::FileError& error, int) { return error.code == ENOENT; };
  expect_on_all_ranks<base::FileError>([] { fs::directory_iterator("/no/such/folder"); }, of_folder);
  const auto of_disk = [](const base::StorageError& error, int) { return error.path == "p" && error.code == ENOSPC; };
  expect_on_all_ranks<base::StorageError>([] { throw base::StorageError("full", "p", ENOSPC); }, of_disk);
}

TEST(Load, WhatIsNoRefusalIsNoneOnOtherRanksEither) {
  const auto holds = [](const RankError& error, int rank) { return error.is_own == (rank == 1); };
  expect_on_all_ranks<RankError>([] { throw std::bad_alloc(); }, holds);
  expect_on_all_ranks<RankError>([] { check_invariant(false, "two is two"); }, holds);
}

}  // namespace
}  // namespace trireme::checkpoint
