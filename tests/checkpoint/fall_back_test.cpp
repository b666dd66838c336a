// A damaged checkpoint gives way to an older one, on all ranks alike.
#include "trireme/checkpoint/fall_back.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "thread_ranks.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/agree.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

// step-3 before step-2 before step-1.
std::optional<fs::path> one_before(const fs::path& damaged) {
  const std::string name = damaged.string();
  if (name.back() == '1') return std::nullopt;
  return fs::path("step-" + std::string(1, static_cast<char>(name.back() - 1)));
}

// Rank 1 alone finds the damage.
void load_with_damage(comm::Communicator& world, const fs::path& folder, char last_damaged) {
  agree(world, [&] {
    if (world.rank() == world.size() - 1 && folder.string().back() >= last_damaged)
      throw DamagedError(folder.string() + " is damaged", folder.string());
  });
}

TEST(FallBack, AnOlderCheckpointTakesTheDamagedOnesPlaceOnEveryRank) {
  run_ranks(2, [](comm::Communicator& world) {
    std::vector<PassedOver> passed_over;
    const fs::path loaded = load_or_older("step-3", world, one_before, passed_over,
                                          [&](const fs::path& folder) { load_with_damage(world, folder, '2'); });
    EXPECT_EQ(loaded, "step-1");
    ASSERT_EQ(passed_over.size(), 2u);
    EXPECT_EQ(passed_over[0].path, "step-3");
    EXPECT_THAT(passed_over[1].verdict.problem, testing::HasSubstr("step-2 is damaged"));
  });
}

TEST(FallBack, WhereNoneIsLeftTheLastDamageIsTheError) {
  run_ranks(2, [](comm::Communicator& world) {
    std::vector<PassedOver> passed_over;
    try {
      load_or_older("step-3", world, one_before, passed_over,
                    [&](const fs::path& folder) { load_with_damage(world, folder, '1'); });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const DamagedError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("step-1 is damaged"));
    }
  });
}

TEST(FallBack, OtherErrorsAreNoDamage) {
  run_ranks(1, [](comm::Communicator& world) {
    std::vector<PassedOver> passed_over;
    const auto refuse = [&](const fs::path& folder) { throw CheckpointError("of another model", folder.string()); };
    EXPECT_THROW(load_or_older("step-3", world, one_before, passed_over, refuse), CheckpointError);
    EXPECT_THAT(passed_over, testing::IsEmpty());
  });
}

}  // namespace
}  // namespace trireme::checkpoint
