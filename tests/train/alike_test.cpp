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
}

}  // namespace
}  // namespace trireme::train
