// Saving beside a training loop: threads in the background, ranks that meet between phases.
#include "trireme/checkpoint/save_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

#include "fixtures.h"
#include "thread_ranks.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/load.h"
#include "trireme/checkpoint/verify.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// What a training loop does after each step: the ranks tell each other whether they are busy.
bool anybody_busy(comm::Communicator& world, const SaveJob& job) {
  at::Tensor mine = at::full({1}, int64_t{job.idle() ? 0 : 1}, at::kLong), all = at::empty({1}, at::kLong);
  world.all_reduce(all, mine, {.op = comm::ReduceOp::max})->wait();
  return all.item<int64_t>() != 0;
}

/// Steps until the save is committed; how many.
int step_until_committed(comm::Communicator& world, SaveJob& job) {
  int steps = 0;
  for (; !job.committed(); ++steps) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!anybody_busy(world, job)) job.advance();
  }
  return steps;
}

TEST(SaveJob, BesideALoopWritesTheSameBytesAsABlockingSave) {
  const ScratchFolder out;
  const auto blocking = folder_contents(save_sample(out / "blocking", 5, 3, 400));
  run_ranks(3, [&](comm::Communicator& world) {
    const SamplePieces pieces(sample_tensors(400), 5, world.rank(), 3, 99);
    SaveJob job(sample_request(out / "beside", 5, pieces, 400), world, {.background = true});
    EXPECT_FALSE(fs::exists(out / "beside/step-00000005")) << "a checkpoint appears when it is whole";
    EXPECT_GE(step_until_committed(world, job), 3) << "three phases, one meeting each";
    EXPECT_EQ(job.result().path, out / "beside/step-00000005");
  });
  EXPECT_EQ(folder_contents(out / "beside/step-00000005"), blocking);
}

TEST(SaveJob, FinishWaitsForWhatIsLeft) {
  const ScratchFolder out;
  run_ranks(2, [&](comm::Communicator& world) {
    const SamplePieces pieces(sample_tensors(400), 5, world.rank(), 2, 99);
    SaveJob job(sample_request(out.path(), 5, pieces, 400), world, {.background = true});
    job.finish();
    EXPECT_TRUE(job.committed());
  });
  EXPECT_EQ(count_wrong_elements(out / "step-00000005", 5, 400), 0);
}

TEST(SaveJob, TellsHowLongItWorkedBesideHowLongItWasUnderWay) {
  const ScratchFolder out;
  run_ranks(2, [&](comm::Communicator& world) {
    const SamplePieces pieces(sample_tensors(400), 5, world.rank(), 2, 99);
    SaveJob job(sample_request(out.path(), 5, pieces, 400), world, {.background = true});
    while (!job.committed()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // steps of a training loop
      job.advance();
    }
    EXPECT_GT(job.result().seconds.count(), 0.6);
    EXPECT_GT(job.result().work_seconds.count(), 0);
    EXPECT_LT(job.result().work_seconds.count(), job.result().seconds.count() - 0.4);
  });
}

TEST(SaveJob, AFailureInTheBackgroundIsEveryRanksErrorAtTheNextMeeting) {
  const ScratchFolder out;
  const auto older = folder_contents(save_sample(out.path(), 1, 2));
  std::mutex mutex;
  std::vector<std::string> errors;
  run_ranks(2, [&](comm::Communicator& world) {
    const SamplePieces pieces(sample_tensors(), 2, world.rank(), 2, 99);
    SaveRequest request = sample_request(out.path(), 2, pieces);
    request.progress_after = std::chrono::milliseconds(0);
    request.progress = [&](const SaveProgress&) {
      if (world.rank() == 1) throw base::FileError("the disk of rank 1 is on fire", out.path(), EIO);
    };
    SaveJob job(request, world, {.background = true});
    std::string error = "no error";
    try {
      step_until_committed(world, job);
    } catch (const CheckpointError& caught) {
      error = caught.what();
    }
    const std::lock_guard lock(mutex);
    errors.push_back(error);
  });
  EXPECT_THAT(errors, testing::Each(HasSubstr("rank 1: the disk of rank 1 is on fire")));
  EXPECT_THAT(names_in(out.path()), testing::ElementsAre("step-00000001"));
  EXPECT_EQ(folder_contents(out / "step-00000001"), older);
}

TEST(SaveJob, AFolderThatSomebodyRemovesDuringTheSaveIsAnError) {
  const ScratchFolder out;
  save_sample(out.path(), 1, 2);
  std::mutex mutex;
  std::vector<std::string> errors;
  run_ranks(2, [&](comm::Communicator& world) {
    const SamplePieces pieces(sample_tensors(400), 2, world.rank(), 2, 99);
    SaveJob job(sample_request(out.path(), 2, pieces, 400), world, {.background = false});
    job.advance();
    job.advance();  // the folder is there, and to be written to
    world.barrier()->wait();
    if (world.rank() == 0)
      for (const auto& entry : fs::directory_iterator(out.path()))
        if (entry.path().filename().string().starts_with(".tmp-")) fs::remove_all(entry.path());
    world.barrier()->wait();
    try {
      job.finish();
    } catch (const CheckpointError& caught) {
      const std::lock_guard lock(mutex);
      errors.emplace_back(caught.what());
    }
  });
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_THAT(errors[0], HasSubstr("but this rank does not see it"));
  EXPECT_THAT(names_in(out.path()), testing::ElementsAre("step-00000001"));
}

TEST(SaveJob, AnAbandonedSaveLeavesNothing) {
  const ScratchFolder out;
  for (int advances = 0; advances < 4; ++advances) {  // up to the checksums; then it appears
    run_ranks(2, [&](comm::Communicator& world) {
      const SamplePieces pieces(sample_tensors(400), 2, world.rank(), 2, 99);
      SaveJob job(sample_request(out.path(), 2, pieces, 400), world, {.background = true});
      for (int i = 0; i < advances; ++i) job.advance();
      EXPECT_FALSE(job.committed());
    });
    EXPECT_THAT(names_in(out.path()), testing::IsEmpty()) << "after " << advances << " phases";
  }
}

TEST(SaveJob, AnOutDirThatIsGoneIsNotMadeAgain) {
  const ScratchFolder out;
  try {
    save_sample(out / "gone", 7, 2, 1, [](int, SaveRequest& request) { request.create_out_dir = false; });
    FAIL() << "no error";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("which was there when the run began, is gone"));
  }
  EXPECT_FALSE(fs::exists(out / "gone"));
}

}  // namespace
}  // namespace trireme::checkpoint
