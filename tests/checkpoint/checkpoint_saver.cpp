// Saves the sample model over and over on two thread ranks, keeping two, and prints each step that is done.
// checkpoint_saver OUT_DIR FIRST_STEP at-once|beside. Killed by kill_test.cpp.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "fixtures.h"
#include "thread_ranks.h"
#include "trireme/checkpoint/save_job.h"

namespace trireme::checkpoint {

constexpr int kRanks = 2;
constexpr int64_t kScale = 300;

void save_at_once(const std::string& out, int64_t step) {
  save_sample(out, step, kRanks, kScale, [](int, SaveRequest& request) { request.keep_last = 2; });
}

/// As a training loop does it: phases in the background, ranks that meet once a "step".
void save_beside(const std::string& out, int64_t step) {
  run_ranks(kRanks, [&](comm::Communicator& world) {
    const SamplePieces pieces(sample_tensors(kScale), step, world.rank(), kRanks, static_cast<uint64_t>(step));
    SaveRequest request = sample_request(out, step, pieces, kScale);
    request.keep_last = 2;
    SaveJob job(request, world, {.background = true});
    while (!job.committed()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      world.barrier()->wait();
      job.advance();
    }
  });
}

}  // namespace trireme::checkpoint

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const bool beside = std::string(argv[3]) == "beside";
  for (int64_t step = std::atoll(argv[2]);; ++step) {
    beside ? trireme::checkpoint::save_beside(argv[1], step) : trireme::checkpoint::save_at_once(argv[1], step);
    std::printf("%ld\n", static_cast<long>(step));
    std::fflush(stdout);
  }
}
