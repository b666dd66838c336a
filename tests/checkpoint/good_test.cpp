// Which checkpoints are good: whole ones of a training that went well, for all that choose, keep or list them alike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "fixtures.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/checkpoint/inspect.h"
#include "trireme/checkpoint/load.h"
#include "trireme/checkpoint/rewrite.h"
#include "trireme/checkpoint/verify.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Kind = Verdict::Kind;

/// A save in which one value of `tensor` is `value`, whichever rank holds it.
fs::path save_with(const fs::path& out, int64_t step, int ranks, const std::string& tensor, float value) {
  std::vector<float> memory;
  return save_sample(out, step, ranks, 1, [&](int, SaveRequest& request) {
    for (Piece& piece : request.pieces) {
      if (piece.tensor != tensor || piece.begin != 0 || piece.end < 2) continue;
      const auto* values = static_cast<const float*>(piece.data);
      memory.assign(values, values + (piece.end - piece.begin));
      memory[1] = value;
      piece.data = memory.data();
    }
  });
}

constexpr float kNothing = std::numeric_limits<float>::quiet_NaN(), kInfinite = std::numeric_limits<float>::infinity();

TEST(Good, ASaveWhoseWeightsBlewUpIsMarkedAndIsNeverTheNewestGoodOne) {
  for (const int ranks : {1, 2, 3}) {
    for (const float value : {kNothing, -kInfinite, 1e38f, -65536.0f}) {
      const ScratchFolder out;
      const fs::path good = save_sample(out.path(), 4, ranks);
      const fs::path ruined = save_with(out.path(), 5, ranks, "model.embed_tokens.weight", value);
      EXPECT_EQ(verdict_of(ruined).kind, Kind::ruined) << value << " on " << ranks;
      EXPECT_THAT(verdict_of(ruined).problem, HasSubstr("model.embed_tokens.weight holds ")) << value;
      std::vector<PassedOver> passed_over;
      EXPECT_EQ(find_latest(out.path(), &passed_over), good);
      ASSERT_EQ(passed_over.size(), 1u);
      EXPECT_EQ(passed_over[0].path, ruined);
      EXPECT_TRUE(keep_last_checkpoints(out.path(), 5, 1).empty()) << "it displaces none";
      EXPECT_EQ(find_older(ruined), good);
      EXPECT_EQ(list_checkpoints(out.path())[0].verdict.kind, Kind::ruined);
      EXPECT_THAT(verify(ruined).ruined, HasSubstr("model.embed_tokens.weight"));
      EXPECT_TRUE(verify(ruined).problems.empty()) << "its bytes are as they were saved";
    }
  }
}

TEST(Good, WhatTheOptimizerKeepsCountsOnlyWhereItIsNotFinite) {
  const ScratchFolder out;
  const std::string state = "model.embed_tokens.weight.exp_avg_sq";
  EXPECT_EQ(verdict_of(save_with(out.path(), 1, 2, state, 1e30f)).problem, "");
  EXPECT_THAT(verdict_of(save_with(out.path(), 2, 2, state, kInfinite)).problem, HasSubstr(state));
  EXPECT_EQ(verdict_of(save_with(out.path(), 3, 2, "model.embed_tokens.weight", 65504)).problem, "");
}

TEST(Good, OfRuinedOnesOnlyTheNewestStaysAndGoodOnesAreCountedWithoutThem) {
  const ScratchFolder out;
  for (const int64_t step : {1, 2}) save_sample(out.path(), step, 1);
  for (const int64_t step : {3, 4}) save_with(out.path(), step, 1, "model.embed_tokens.weight", kNothing);
  keep_last_checkpoints(out.path(), 4, 1);
  EXPECT_THAT(names_in(out.path()), testing::ElementsAre("step-00000001", "step-00000002", "step-00000004"));
  save_sample(out.path(), 5, 1);
  keep_last_checkpoints(out.path(), 5, 2);
  EXPECT_THAT(names_in(out.path()), testing::ElementsAre("step-00000002", "step-00000005"));
}

TEST(Good, AMarkThatComesLaterChangesNothingElse) {
  const ScratchFolder out;
  const fs::path path = save_sample(out.path(), 1, 2);
  mark_ruined(path, "at the next step the loss was nan");
  EXPECT_EQ(verdict_of(path).problem, "it is marked as ruined: at the next step the loss was nan");
  EXPECT_EQ(count_wrong_elements(path, 1), 0);
  EXPECT_TRUE(verify(path).problems.empty());
  rewrite(path, out / "copy", {});
  EXPECT_EQ(verdict_of(out / "copy").kind, Kind::ruined) << "a copy of it is no better";
}

TEST(Good, WhatARunLeavesBehindIsNoLongerTheNewestUntilItIsGoneBackTo) {
  const ScratchFolder out;
  for (const int64_t step : {1, 2, 3}) save_sample(out.path(), step, 1);
  const fs::path ruined = save_with(out.path(), 4, 1, "model.embed_tokens.weight", kNothing);
  EXPECT_TRUE(leave_later_behind(out.path(), 3).empty()) << "a ruined one has its mark already";
  EXPECT_THAT(leave_later_behind(out.path(), 1), testing::ElementsAre(out / "step-00000003", out / "step-00000002"));
  EXPECT_EQ(verdict_of(ruined).kind, Kind::ruined);
  EXPECT_EQ(verdict_of(out / "step-00000003").kind, Kind::left_behind);
  EXPECT_EQ(verdict_of(out / "step-00000003").problem, "it is marked as left behind: a run went back to step 1");
  EXPECT_EQ(find_latest(out.path()), out / "step-00000001");
  EXPECT_TRUE(verify(out / "step-00000003").problems.empty());
  EXPECT_TRUE(leave_later_behind(out.path(), 3).empty());
  EXPECT_EQ(find_latest(out.path()), out / "step-00000003") << "a run went back to it";
}

TEST(Good, WhatIsLeftBehindGoesWhenTheRunHasPassedIt) {
  const ScratchFolder out;
  for (const int64_t step : {1, 3, 4}) save_sample(out.path(), step, 1);
  leave_later_behind(out.path(), 1);
  save_sample(out.path(), 2, 1);
  EXPECT_TRUE(keep_last_checkpoints(out.path(), 2, 2).empty());
  save_with(out.path(), 5, 1, "model.embed_tokens.weight", kNothing);
  EXPECT_TRUE(keep_last_checkpoints(out.path(), 5, 2).empty()) << "no good one has passed it";
  save_sample(out.path(), 6, 1);
  keep_last_checkpoints(out.path(), 6, 2);
  EXPECT_THAT(names_in(out.path()), testing::ElementsAre("step-00000002", "step-00000006"));
}

TEST(Good, AnyDamagedFileThatVerifyFindsWithoutTensorsIsPassedOver) {
  const ScratchFolder out;
  const fs::path older = save_sample(out.path(), 1, 1), newer = save_sample(out.path(), 2, 1);
  int files = 0;
  for (const auto& [name, bytes] : folder_contents(newer)) {
    if (name.ends_with(".safetensors")) continue;
    std::string other = bytes;
    other[other.size() / 2] ^= 1;
    for (const std::string& broken : {other, bytes.substr(1)}) {
      overwrite(newer / name, broken);
      EXPECT_EQ(find_latest(out.path()), older) << name;
      EXPECT_FALSE(verify(newer).problems.empty()) << name;
      EXPECT_THROW(open_checkpoint(newer), DamagedError) << name;
      EXPECT_FALSE(list_checkpoints(newer)[0].verdict.good()) << name;
    }
    overwrite(newer / name, bytes);
    ++files;
  }
  EXPECT_GE(files, 4);
  EXPECT_EQ(find_latest(out.path()), newer);
}

TEST(Good, WeightsAloneAreNoCheckpointOfARunWhateverTheirFolderIsCalled) {
  const ScratchFolder out;
  for (const int64_t step : {2, 4}) save_sample(out.path(), step, 1);
  const fs::path weights = rewrite(out / "step-00000004", out / "step-9", {.weights_only = true}).path;
  EXPECT_EQ(verdict_of(weights).kind, Kind::weights_alone);
  EXPECT_EQ(list_checkpoints(out.path())[0].verdict.problem, "it holds weights alone");
  EXPECT_EQ(find_latest(out.path()), out / "step-00000004");
  EXPECT_EQ(newest_or_itself(out.path()), out / "step-00000004");
  EXPECT_THAT(leave_later_behind(out.path(), 2), testing::ElementsAre(out / "step-00000004"));
  save_sample(out.path(), 10, 1);
  save_sample(out.path(), 11, 1);
  keep_last_checkpoints(out.path(), 11, 2);
  EXPECT_THAT(names_in(out.path()), testing::ElementsAre("step-00000010", "step-00000011", "step-9"))
      << "they do not count and stay";
  const ScratchFolder alone;
  rewrite(weights, alone / "step-9", {.weights_only = true});
  EXPECT_EQ(newest_or_itself(alone.path()), alone / "step-9") << "no run is there that could be meant";
}

TEST(Good, WhatIsPassedOverIsSaidOnce) {
  const ScratchFolder out;
  const fs::path good = save_sample(out.path(), 4, 1), damaged = save_sample(out.path(), 5, 1),
                 ruined = save_with(out.path(), 6, 1, "model.embed_tokens.weight", kNothing);
  overwrite(damaged / "config.json", "{}");
  testing::internal::CaptureStderr();
  for (int asked = 0; asked < 2; ++asked) EXPECT_EQ(newest_or_itself(out.path()), good);
  EXPECT_EQ(newest_or_itself(good), good);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("passed over " + ruined.string() + ": it is marked as ruined"));
  EXPECT_THAT(said, HasSubstr("passed over " + damaged.string() + ": "));
  EXPECT_EQ(std::ranges::count(said, '\n'), 2) << said;
  const std::string told = told_of_passed_over();  // for the ranks that this process starts
  EXPECT_THAT(told, testing::AllOf(HasSubstr(ruined.string()), HasSubstr(damaged.string())));
  fs::remove_all(good);
  EXPECT_EQ(newest_or_itself(out.path()), out.path()) << "none is good";
}

TEST(Good, ManyDamagedOnesAreLookedAtOnceEach) {
  const ScratchFolder out;
  for (int64_t step = 1; step <= 24; ++step) {
    save_sample(out.path(), step, 1);
    overwrite(out / step_folder_name(step) / "config.json", "{}");
  }
  EXPECT_EQ(find_latest(out.path()), std::nullopt);  // each asking for the next older one would take 2^24 looks
}

TEST(Good, WhatMayNotBeReadIsNotCalledDamaged) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  const ScratchFolder out;
  const fs::path older = save_sample(out.path(), 1, 1), path = save_sample(out.path(), 2, 1);
  fs::permissions(out.path(), fs::perms::all);
  for (const char* name : {"model.safetensors", "config.json", "manifest.json"}) {
    fs::permissions(path / name, fs::perms::none);
    ::setfsuid(65534);  // of this thread, and with it what root may
    const Verdict verdict = verdict_of(path);
    const std::string error = error_of<UnreadableError>([&] { open_checkpoint(path); });
    const VerifyReport report = verify(path);
    const std::string skipping = error_of<UnreadableError>([&] { newest_or_itself(out.path()); });
    ::setfsuid(0);
    fs::permissions(path / name, fs::perms::owner_all);
    EXPECT_EQ(verdict.kind, Kind::unreadable) << name;
    EXPECT_THAT(error, HasSubstr("cannot be read")) << name;
    EXPECT_THAT(error,
                testing::AllOf(HasSubstr(name), HasSubstr("Permission denied"), testing::Not(HasSubstr("damaged"))));
    EXPECT_THAT(skipping, testing::AllOf(HasSubstr(name), HasSubstr("name the checkpoint that is meant")));
    EXPECT_TRUE(report.problems.empty()) << name;
    ASSERT_FALSE(report.unreadable.empty()) << name;
    EXPECT_THAT(report.unreadable[0], HasSubstr("Permission denied"));
  }
}

}  // namespace
}  // namespace trireme::checkpoint
