#include "trireme/train/same_on_ranks.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "../checkpoint/thread_ranks.h"
#include "tests/data/refusal.h"
#include "trireme/train/run_data.h"

namespace trireme::train {
namespace {

// What each of the ranks is told, where rank i has values[i]; one answer, for all are told the same.
std::string told(const std::vector<std::string>& values) {
  std::mutex mutex;
  std::set<std::string> all;
  checkpoint::run_ranks(static_cast<int>(values.size()), [&](comm::Communicator& world) {
    const auto unlike = find_unlike(world, values[static_cast<size_t>(world.rank())]);
    const std::lock_guard lock(mutex);
    all.insert(unlike ? std::to_string(unlike->rank) + ": " + unlike->what : "alike");
  });
  return all.size() == 1 ? *all.begin() : "ranks are told different things";
}

TEST(SameOnRanks, AllAreToldTheFirstRankThatHasOtherValuesThanRankZero) {
  const std::string first = R"({"lr": "1", "seed": "4"})", second = R"({"lr": "2", "seed": "4"})";
  EXPECT_EQ(told({first, first, first}), "alike");
  EXPECT_EQ(told({first, first, second}), "2: lr 2, rank 0 has 1");
  EXPECT_EQ(told({first, second, second}), "1: lr 2, rank 0 has 1");
}

TEST(SameOnRanks, ADifferenceInWordsAloneHidesNoOther) {
  const std::string first = R"({"precision": "32-true"})", by_auto = R"x({"precision": "32-true (auto)"})x",
                    other = R"({"precision": "64-true"})";
  EXPECT_EQ(told({first, by_auto}), "1: ");
  EXPECT_EQ(told({first, by_auto, other}), "2: precision 64-true, rank 0 has 32-true");
}

TEST(SameOnRanks, DataAreRefusedOnEveryRankAlsoIfOneOfThemLacksAFact) {
  data::DataIdentity first, other_text, more;
  first.add("the text", "a");
  other_text.add("the text", "b");
  more.add("the text", "a");
  more.add("held-out data", "c");
  const auto refusal_of = [&](const data::DataIdentity& second, const std::string& sentence) {
    checkpoint::run_ranks(2, [&](comm::Communicator& world) {
      EXPECT_EQ(data::refusal([&] { require_same_data(world, world.rank() == 0 ? first : second); }), sentence);
    });
  };
  refusal_of(first, "not refused");
  refusal_of(other_text, "rank 1 has the text b, rank 0 has a; give every machine the same data");
  refusal_of(more, "rank 1 has other data than rank 0; give every machine the same data");
}

}  // namespace
}  // namespace trireme::train
