// One at a time: a micro-batch goes forward through all stages and back before the next one starts. One micro-batch's
// activations are held; idle (p-1)/p, however many micro-batches there are.
#include "trireme/schedule/pipelines/pipelines.h"

namespace trireme::schedule::pipelines {
namespace {

std::vector<Cell> cells(const PipelineShape& s) {
  std::vector<Cell> out;
  for (int k = 0; k < s.micro_batches; ++k) {
    out.push_back({Cell::Kind::forward, 0, k});
    out.push_back({Cell::Kind::backward, 0, k});
  }
  return out;
}

}  // namespace

PipelineSchedule one_at_a_time() {
  return {.name = "one_at_a_time", .summary = "one micro-batch in the pipeline at a time", .cells = cells};
}

}  // namespace trireme::schedule::pipelines
