#include "trireme/checkpoint/save.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "fixtures.h"
#include "thread_ranks.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/load.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST(Save, AnyNumberOfRanksWritesTheSameBytes) {
  const ScratchFolder out;
  const auto one = folder_contents(save_sample(out / "1", 800, 1, 400));  // 5 MB: several blocks
  EXPECT_EQ(one.size(), 8u);
  for (const int num_ranks : {2, 3, 4}) {
    const auto other = folder_contents(save_sample(out / std::to_string(num_ranks), 800, num_ranks, 400));
    EXPECT_EQ(other, one) << num_ranks << " ranks";
  }
}

TEST(Save, AHeaderOfManyTensorsFillsBlocksOfItsOwn) {
  const ScratchFolder out;
  run_ranks(3, [&](comm::Communicator& world) {
    SaveRequest request{.out_dir = out.path(), .step = 1};
    const float value = static_cast<float>(world.rank());
    for (int rank = 0; rank < 3; ++rank) {  // three names as long as those of 10,000 tensors: a header of 2.4 MB
      request.model.push_back({.name = std::string(800'000, static_cast<char>('a' + rank)), .shape = {1}});
      if (rank == world.rank())
        request.pieces.push_back({.tensor = request.model.back().name, .begin = 0, .end = 1, .data = &value});
    }
    const Checkpoint checkpoint = open_checkpoint(save_checkpoint(request, world).path);
    float read = -1;
    read_piece(checkpoint, {request.pieces[0].tensor, 0, 1, &read, Dtype::f32});
    EXPECT_EQ(read, value);
  });
}

TEST(Save, TellsTheSizeOfItsFiles) {
  const ScratchFolder out;
  run_ranks(2, [&](comm::Communicator& world) {
    const SamplePieces pieces(sample_tensors(1), 1, world.rank(), 2, 7);
    const SaveResult saved = save_checkpoint(sample_request(out.path(), 1, pieces, 1), world);
    if (world.rank() != 0) return;
    int64_t bytes = 0;
    for (const auto& file : fs::directory_iterator(saved.path)) bytes += static_cast<int64_t>(file.file_size());
    EXPECT_EQ(saved.bytes, bytes);
  });
}

TEST(Save, SmallFilesLimitGivesManyFilesAndTheSameTensors) {
  const ScratchFolder out;
  const fs::path path =
      save_sample(out.path(), 3, 2, 1, [](int, SaveRequest& request) { request.max_shard_bytes = 3000; });
  EXPECT_TRUE(fs::exists(path / "model-00003-of-00003.safetensors"));
  EXPECT_TRUE(fs::exists(path / "model.safetensors.index.json"));
  EXPECT_EQ(count_wrong_elements(path, 3), 0);
}

TEST(Save, TheFolderHoldsWhatHuggingFaceAndResumeNeed) {
  const ScratchFolder out;
  const fs::path path = save_sample(out.path(), 800, 2);
  EXPECT_EQ(path.filename(), "step-00000800");
  EXPECT_THAT(names_in(path),
              testing::ElementsAre("config.json", "generation_config.json", "manifest.json", "model.safetensors",
                                   "optimizer-00001-of-00001.safetensors", "optimizer.safetensors.index.json",
                                   "settings.yaml", "trireme_state.json"));
  EXPECT_THAT(names_in(out.path()), testing::ElementsAre("step-00000800"));
  const Checkpoint checkpoint = open_checkpoint(path);
  EXPECT_EQ(checkpoint.step, 800);
  EXPECT_EQ(nlohmann::json::parse(checkpoint.state_json)["step"], 800);
  EXPECT_EQ(read_text(checkpoint, "settings.yaml"), "seed: 42\n");
}

TEST(Save, Float64StateIsStoredAsFloat64) {
  const ScratchFolder out;
  run_ranks(1, [&](comm::Communicator& world) {
    const std::vector<TensorSpec> model = {{.name = "w", .shape = {2}, .dtype = Dtype::bf16}};
    const double values[] = {1.0 / 3, -1e-300};
    SaveRequest request{
        .out_dir = out.path(), .step = 1, .model = model, .optimizer = state_tensors(model, kAdamW, Dtype::f64)};
    for (const char* name : {"w", "w.master", "w.exp_avg", "w.exp_avg_sq"}) {
      request.pieces.push_back({.tensor = name, .begin = 0, .end = 2, .data = values, .dtype = Dtype::f64});
    }
    const Checkpoint checkpoint = open_checkpoint(save_checkpoint(request, world).path);
    double read[2];
    const PieceRequest piece{.tensor = "w.exp_avg_sq", .begin = 0, .end = 2, .data = read, .dtype = Dtype::f64};
    read_pieces(checkpoint, {&piece, 1});
    EXPECT_EQ(read[0], values[0]);
    EXPECT_EQ(read[1], values[1]);
  });
}

TEST(Save, PiecesThatMissRepeatOrLeaveATensorAreRefusedOnAllRanks) {
  const ScratchFolder out;
  const auto refused = [&](const std::function<void(int, SaveRequest&)>& change) {
    return error_of([&] { save_sample(out.path(), 5, 2, 1, change); });
  };
  EXPECT_THAT(refused([](int rank, SaveRequest& r) {
                if (rank == 1) r.pieces.pop_back();
              }),
              HasSubstr("no rank gives elements"));
  EXPECT_THAT(refused([](int rank, SaveRequest& r) {
                if (rank == 0) r.pieces.push_back(r.pieces[0]);
              }),
              HasSubstr("given by rank 0 and by rank 0"));
  EXPECT_THAT(refused([](int rank, SaveRequest& r) {
                if (rank == 1) r.pieces[0].tensor = std::string("x");
              }),
              HasSubstr("rank 1: cannot save tensor 'x'"));
  EXPECT_THAT(refused([](int rank, SaveRequest& r) {
                if (rank == 1) r.pieces[0].end = 1 << 20;
              }),
              HasSubstr("but its shape is"));
  EXPECT_THAT(refused([](int rank, SaveRequest& r) {
                if (rank == 1) r.pieces[0].dtype = Dtype::i64;
              }),
              HasSubstr("does not convert"));
  EXPECT_THAT(refused([](int rank, SaveRequest& r) { r.step += rank; }), HasSubstr("rank 1 has other tensors"));
  EXPECT_THAT(refused([](int rank, SaveRequest& r) {
                if (rank == 1) r.max_shard_bytes = 100;
              }),
              HasSubstr("rank 1 has other tensors"));
  EXPECT_THAT(refused([](int, SaveRequest& r) { r.extra_files["a/../../b"] = ""; }), HasSubstr("not a name"));
  EXPECT_THAT(refused([](int, SaveRequest& r) { r.extra_files["manifest.json"] = ""; }), HasSubstr("would replace"));
  EXPECT_THAT(refused([](int, SaveRequest& r) { r.state_json = std::string("{"); }), HasSubstr("not JSON"));
  EXPECT_THAT(refused([](int, SaveRequest& r) { r.optimizer.push_back(r.model[0]); }),
              HasSubstr("to the model and to the optimizer"));
  EXPECT_TRUE(fs::is_empty(out.path()));
}

TEST(Save, AFailureOnOneRankEndsTheSaveOnAllAndLeavesOlderOnes) {
  const ScratchFolder out;
  save_sample(out.path(), 1, 2);
  for (const int bad_rank : {0, 1, 2}) {
    for (const char* bad_phase : {"write", "checksum"}) {
      const std::string error = error_of([&] {
        save_sample(out.path(), 2, 3, 400, [&](int rank, SaveRequest& request) {
          request.progress_after = std::chrono::milliseconds(0);
          request.progress = [=](const SaveProgress& progress) {
            if (rank == bad_rank && std::string(progress.phase) == bad_phase)
              throw std::runtime_error("input/output error");
          };
        });
      });
      EXPECT_EQ(error, "rank " + std::to_string(bad_rank) + ": input/output error");
      EXPECT_THAT(names_in(out.path()), testing::ElementsAre("step-00000001"));
    }
  }
  EXPECT_EQ(count_wrong_elements(*find_latest(out.path()), 1), 0);
}

TEST(Save, ProgressCountsToTheWholeAndIsSilentInShortSaves) {
  const ScratchFolder out;
  std::mutex mutex;
  std::map<std::string, std::pair<int64_t, int64_t>> last;
  save_sample(out.path(), 1, 2, 400, [&](int rank, SaveRequest& request) {
    request.progress_after = std::chrono::milliseconds(0);
    request.progress = [&, rank](const SaveProgress& p) {
      const std::lock_guard lock(mutex);
      last[std::to_string(rank) + p.phase] = {p.done_bytes, p.total_bytes};
    };
  });
  ASSERT_EQ(last.size(), 4u) << "both ranks write, and share the blocks that both have filled";
  for (const auto& [phase, bytes] : last) EXPECT_EQ(bytes.first, bytes.second) << phase;
  EXPECT_GT(last.at("0write").second + last.at("1write").second, 4'900'000);
  int calls = 0;
  save_sample(out.path(), 2, 1, 1, [&](int, SaveRequest& request) {
    request.progress_after = std::chrono::hours(1);
    request.progress = [&](const SaveProgress&) { ++calls; };
  });
  EXPECT_EQ(calls, 0);
}

TEST(Save, SavingAStepAgainReplacesIt) {
  const ScratchFolder out;
  save_sample(out.path(), 7, 1, 2);
  const fs::path path = save_sample(out.path(), 7, 2, 1);
  EXPECT_EQ(count_wrong_elements(path, 7, 1), 0);
  EXPECT_THAT(names_in(out.path()), testing::ElementsAre("step-00000007"));
}

TEST(Save, OnlyTheLastGoodOnesStay) {
  const ScratchFolder out;
  fs::create_directories(out / "step-00000001");  // somebody else's: no manifest
  for (const int64_t step : {2, 3, 4, 5}) save_sample(out.path(), step, 1);
  overwrite(out / "step-00000004/config.json", "{}");  // no longer complete
  save_sample(out.path(), 6, 2, 1, [](int, SaveRequest& request) { request.keep_last = 2; });
  // 6 and 5 are the last good ones; 4, 3 and 2 go.
  EXPECT_THAT(names_in(out.path()), testing::ElementsAre("step-00000001", "step-00000005", "step-00000006"));
}

TEST(Save, ADamagedOneDoesNotCountAndTheLastGoodOneStays) {
  const ScratchFolder out;
  for (const int64_t step : {2, 3}) save_sample(out.path(), step, 1);
  overwrite(out / "step-00000003/config.json", "{}");
  save_sample(out.path(), 4, 1, 1, [](int, SaveRequest& request) { request.keep_last = 2; });
  EXPECT_THAT(names_in(out.path()), testing::ElementsAre("step-00000002", "step-00000003", "step-00000004"));
  overwrite(out / "step-00000004/config.json", "{}");
  EXPECT_TRUE(keep_last_checkpoints(out.path(), 4, 1).empty()) << "nothing goes while the newest is damaged";
}

TEST(Save, TheOnesThatTheRunWasStartedWithStay) {
  const ScratchFolder out;
  for (const int64_t step : {1, 2, 3, 4, 5}) save_sample(out.path(), step, 1);
  fs::create_directory_symlink(out / "step-00000003", out / "link");
  save_sample(out.path(), 6, 2, 1, [&](int, SaveRequest& request) {
    request.keep_last = 1;
    request.protected_paths = {out / "step-00000001/",  // a model, a tokenizer, by another name, and what is nowhere
                               out / "step-00000002/config.json",
                               out / "link",
                               "llama-5m",
                               "",
                               out / "nowhere/at/all"};
  });
  EXPECT_THAT(names_in(out.path()),
              testing::ElementsAre("link", "step-00000001", "step-00000002", "step-00000003", "step-00000006"));
}

TEST(Save, StepsNewerThanTheSavedOneAreLeftAlone) {
  const ScratchFolder out;
  for (const int64_t step : {10, 20}) save_sample(out.path(), step, 1);
  save_sample(out.path(), 15, 1, 1, [](int, SaveRequest& request) { request.keep_last = 1; });
  EXPECT_THAT(names_in(out.path()), testing::ElementsAre("step-00000015", "step-00000020"));
}

TEST(Save, LeftoversOfDeadJobsGoAndThoseOfLivingOnesStay) {
  const ScratchFolder out;
  for (const char* label : {"step-00000009", "deleted-step-00000003", "deleted-old", "convert"}) {
    const fs::path dead = out / (".tmp-" + std::string(label) + "-00c0ffee0123cdef");
    fs::create_directories(dead);
    overwrite(dead / "model.safetensors", "half");
  }
  const TemporaryFolder living(out.path(), "step-00000010");
  EXPECT_EQ(find_latest(out.path()), std::nullopt);
  save_sample(out.path(), 11, 1);
  EXPECT_THAT(names_in(out.path()), testing::ElementsAre(living.path().filename().string(), "step-00000011"));
}

// A checkpoint is deleted on a thread beside training, and the next save removes leftovers.
TEST(Save, ACheckpointThatIsBeingDeletedIsNoLeftover) {
  const ScratchFolder out;
  std::atomic<bool> done = false;
  std::jthread saves([&] {
    while (!done) remove_leftovers(out.path());
  });
  for (int step = 1; step <= 100; ++step) {
    const fs::path folder = out / step_folder_name(step);
    fs::create_directories(folder);
    for (int file = 0; file < 20; ++file) overwrite(folder / std::to_string(file), "x");
    EXPECT_NO_THROW(remove_checkpoint(folder)) << step;
  }
  done = true;
}

TEST(Save, TemporaryFoldersOfOthersStay) {
  const ScratchFolder out;
  const std::vector<std::string> others = {".tmp-mine", ".tmp-mine-00c0ffee0123cdef", ".tmp-step-00000009-backup",
                                           ".tmp-step-00000009", ".tmp-00c0ffee0123cdef"};
  for (const std::string& name : others) {
    fs::create_directories(out / name);
    overwrite(out / name / "keep", "mine");
  }
  save_sample(out.path(), 11, 1);
  for (const std::string& name : others) EXPECT_TRUE(fs::exists(out / name / "keep")) << name;
}

TEST(Save, WhatASaveUnderAnotherNameLeavesGoesWithTheNextOne) {
  const ScratchFolder out;
  std::string temporary;
  const std::string error = error_of([&] {
    save_sample(out.path(), 1, 1, 400, [&](int, SaveRequest& request) {
      request.name = "resharded";
      request.progress_after = std::chrono::milliseconds(0);
      request.progress = [&](const SaveProgress&) {
        temporary = names_in(out.path()).at(0);
        throw std::runtime_error("enough");
      };
    });
  });
  EXPECT_THAT(error, HasSubstr("enough"));
  ASSERT_THAT(temporary, testing::StartsWith(".tmp-"));
  fs::create_directories(out / temporary);  // as a killed job leaves it
  const int held = ::open((out / temporary).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);  // by a thread that has not ended yet
  EXPECT_FALSE(remove_leftovers(out.path()));
  EXPECT_TRUE(fs::exists(out / temporary));
  ::close(held);
  EXPECT_TRUE(remove_leftovers(out.path()));
  EXPECT_TRUE(fs::is_empty(out.path()));
}

TEST(Save, AnOutDirThatCannotBeMadeIsOneSentence) {
  const ScratchFolder out;
  overwrite(out / "file", "");
  EXPECT_THAT(error_of([&] { save_sample(out / "file", 1, 2); }), HasSubstr("file"));
}

}  // namespace
}  // namespace trireme::checkpoint
