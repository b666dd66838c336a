#include "trireme/train/alike.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/train/epoch_loss.h"

namespace trireme::train {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const Kind kEpyc{"AMD EPYC", "avx512_bf16", "", "", "trireme 1"}, kXeon{"Intel Xeon", "amx_bf16", "", "", "trireme 1"};

TEST(Alike, EqualRanksDifferInNothing) { EXPECT_THAT(differences(std::vector{kEpyc, kEpyc, kEpyc}), IsEmpty()); }

TEST(Alike, EachKindOfThingIsASentence) {
  EXPECT_THAT(differences(std::vector{kEpyc, kXeon, kEpyc}),
              ElementsAre("processor: ranks 0, 2: AMD EPYC; rank 1: Intel Xeon",
                          "instructions: ranks 0, 2: avx512_bf16; rank 1: amx_bf16"));
}

TEST(Alike, ManyRanksAreCounted) {
  std::vector<Kind> ranks(9, kEpyc);
  ranks[8].driver = "580";
  EXPECT_THAT(differences(ranks), ElementsAre("driver: ranks 0, 1, 2, 3, 4 more: unknown; rank 8: 580"));
}

TEST(EpochLoss, IsTheMeanOfTheStepsOfAPass) {
  EpochLoss losses;
  const auto step = [&](int64_t number, double epoch, double loss) {
    base::StepEvent event{.step = number, .loss = loss, .epoch = epoch};
    const std::string line = losses.note(event);
    EXPECT_EQ(line.empty(), event.measures.empty());
    return event.measures.empty() ? 0.0 : event.measures.front().value;
  };
  EXPECT_EQ(step(1, 0.4, 4), 0);
  EXPECT_EQ(step(2, 0.8, 3), 0);
  EXPECT_EQ(step(3, 1.2, 2), 3);  // the pass ends within the step
  EXPECT_EQ(step(4, 1.6, 1), 0);
  EXPECT_EQ(step(5, 2.0, 0), 0.5);
  EXPECT_EQ(step(6, 3.0, 7), 7);  // a pass of one step
}

TEST(EpochLoss, APassOfOneStepIsTheFirstToo) {
  EpochLoss losses(0);
  base::StepEvent event{.step = 1, .loss = 4, .epoch = 1};
  EXPECT_EQ(losses.note(event), "epoch    1 ended with step 1: mean training loss 4.0000 over 1 step");
  EXPECT_EQ(event.measures.front(), (base::Measured{"epoch_loss", 4}));
}

TEST(EpochLoss, StepsThatLearnFromNoTokenDoNotCount) {
  EpochLoss losses(0);
  base::StepEvent first{.step = 1, .loss = 4, .epoch = 0.5}, second{.step = 2, .epoch = 1},
      third{.step = 3, .epoch = 2};
  losses.note(first);
  EXPECT_EQ(losses.note(second), "epoch    1 ended with step 2: mean training loss 4.0000 over 1 step");
  EXPECT_EQ(second.measures.front(), (base::Measured{"epoch_loss", 4}));
  EXPECT_EQ(losses.note(third),
            "epoch    2 ended with step 3; no step of it learned from a token, so it has no mean loss");
  EXPECT_TRUE(third.measures.empty());
}

TEST(EpochLoss, APassThatBeganBeforeThisStartHasNoMean) {
  EpochLoss losses(1.5);
  base::StepEvent second{.step = 4, .loss = 4, .epoch = 2}, third{.step = 5, .loss = 3, .epoch = 3};
  EXPECT_EQ(losses.note(second),
            "epoch    2 ended with step 4; it began before this start, so its mean loss is left out");
  EXPECT_TRUE(second.measures.empty() && second.is_kept);
  losses.note(third);
  EXPECT_EQ(third.measures.front(), (base::Measured{"epoch_loss", 3}));
}

// A run of whole batches ends before the pass does.
TEST(EpochLoss, OfTheLastPassIsToldAtTheLastStep) {
  const auto last_of = [](EpochLoss losses, int64_t first, int64_t last, int64_t max_steps, double each) {
    std::string line;
    for (int64_t step = first; step <= last; ++step) {
      base::StepEvent event{.step = step, .max_steps = max_steps, .loss = double(step), .epoch = each * double(step)};
      line = losses.note(event);
    }
    return line;
  };
  EXPECT_EQ(last_of(EpochLoss(0, 1), 1, 3, 3, 0.3),
            "epoch    1 ended with step 3: mean training loss 2.0000 over 3 steps");
  EXPECT_EQ(last_of(EpochLoss(0, 1), 1, 1, 1, 0.7),
            "epoch    1 ended with step 1: mean training loss 1.0000 over 1 step");
  EXPECT_EQ(last_of(EpochLoss(0.9, 2), 4, 6, 6, 0.3),
            "epoch    2 ended with step 6: mean training loss 5.5000 over 2 steps");
  EXPECT_EQ(last_of(EpochLoss(), 1, 3, 3, 0.3), "");     // train.max_steps ends it
  EXPECT_EQ(last_of(EpochLoss(0, 2), 1, 3, 3, 0.3), "");
  EXPECT_EQ(last_of(EpochLoss(0, 1), 1, 2, 3, 0.3), "");
  EXPECT_EQ(last_of(EpochLoss(0, 1), 1, 4, 4, 0.15), "");  // two more steps of such batches have room
  EXPECT_EQ(last_of(EpochLoss(0, 1, /*steps_of_batch=*/4), 1, 4, 4, 0.15),
            "epoch    1 ended with step 4: mean training loss 2.5000 over 4 steps");
  EXPECT_EQ(last_of(EpochLoss(0, 1), 1, 2, 2, 0.8),
            "epoch    1 ended with step 2: mean training loss 1.5000 over 2 steps");
  EXPECT_EQ(last_of(EpochLoss(0, 1), 1, 3, 3, 0.6), "");  // it ended with step 2, and further prompts were read
}

}  // namespace
}  // namespace trireme::train
