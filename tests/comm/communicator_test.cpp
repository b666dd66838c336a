// Ring 2: every check of the suite on thread ranks, for every backend and several group sizes.
#include <gtest/gtest.h>

#include "comm_checks.h"
#include "thread_ranks.h"

namespace trireme::comm::testing {
namespace {

struct CheckCase {
  std::string backend;
  int size;
  const Check* check;
};

void PrintTo(const CheckCase& c, std::ostream* out) {
  *out << c.check->name << " on " << c.size << " ranks over " << c.backend;
}

class EveryBackend : public ::testing::TestWithParam<CheckCase> {};

TEST_P(EveryBackend, Passes) {
  const CheckCase& c = GetParam();
  const auto errors = run_thread_ranks({.backend = c.backend, .size = c.size},
                                       [&](Communicator& communicator) { run_check(c.check->name, communicator); });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

std::vector<CheckCase> check_cases() {
  std::vector<CheckCase> all;
  for (const char* backend : {"threads", "shm", "gloo", kSealedGloo}) {
    for (const int size : {1, 2, 3, 4, 8}) {
      for (const Check& check : all_checks()) {
        const std::string name = check.name;
        if (name == "Large" && size != 2) continue;
        if (size == 8 && std::string(backend) != "threads") continue;  // processes do it for shm
        if (name == "Messages" && size == 1) continue;  // nobody to talk to
        if (size == 1 && std::string(backend) != "threads") continue;  // a group of one is the same for all
        all.push_back({backend, size, &check});
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Communicator, EveryBackend, ::testing::ValuesIn(check_cases()), [](const auto& info) {
  return info.param.backend + std::to_string(info.param.size) + "Ranks" + info.param.check->name;
});

}  // namespace
}  // namespace trireme::comm::testing
