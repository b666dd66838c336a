#include "trireme/train/setup.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "trireme/model/from_settings.h"
#include "trireme/plan/step_plan.h"
#include "trireme/settings/parse.h"

namespace trireme::train {
namespace {

// What the launcher compares with the machine's memory is the sum of what its ranks plan, though they differ: the last
// has the smallest shard, the owner of a large tensor holds more, and so does the first stage of a pipeline.
TEST(Setup, AHostNeedsWhatItsRanksPlan) {
  for (const std::vector<std::string>& more : {std::vector<std::string>{"--optimizer=LAMB", "--strategy=zero1"},
                                               {"--optimizer=Muon", "--strategy=full_shard"},
                                               {"--mesh.pp=4", "--train.global_batch_size=32"},
                                               {"--mesh.pp=2", "--optimizer=LARS", "--strategy=zero2"},
                                               {"--strategy=full_shard"}}) {
    std::vector<std::string> words = {"llama-5m", "--devices=4", "--comm.backend=gloo", "--train.micro_batch_size=2"};
    words.insert(words.end(), more.begin(), more.end());
    const Settings settings = parse_settings(words).settings;
    const model::ModelConfig config = model::config_of(settings.model);
    const int64_t planned = plan_host(settings);  // first: it sets the number of threads, as a rank does
    std::vector<int64_t> ranks;
    for (int rank = 0; rank < 4; ++rank) {
      const plan::StepRequest request = step_request(settings, config, rank, 4);
      ranks.push_back(plan::make_step_plan(build_run_model(settings, config, request), request).arena.total());
    }
    EXPECT_EQ(planned, ranks[0] + ranks[1] + ranks[2] + ranks[3]) << more[0];
    EXPECT_NE(planned, 4 * ranks[0]) << more[0];
  }
}

}  // namespace
}  // namespace trireme::train
