// Saves the sample model over and over on two thread ranks, keeping two, and prints each step that is done.
// checkpoint_saver OUT_DIR FIRST_STEP. Killed by kill_test.cpp.
#include <cstdio>
#include <cstdlib>

#include "fixtures.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  for (int64_t step = std::atoll(argv[2]);; ++step) {
    trireme::checkpoint::save_sample(argv[1], step, 2, 300,
                                     [](int, trireme::checkpoint::SaveRequest& request) { request.keep_last = 2; });
    std::printf("%ld\n", static_cast<long>(step));
    std::fflush(stdout);
  }
}
