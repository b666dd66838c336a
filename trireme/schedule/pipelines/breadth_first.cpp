// Looped breadth-first: all micro-batches run through a rank's first stage, then through its second, ..., and in
// reverse order backward. So a stage's weights are gathered once a pass, and its gradients are reduced together.
// Source: arXiv 2211.05953.
#include "trireme/schedule/pipelines/pipelines.h"

namespace trireme::schedule::pipelines {
namespace {

std::vector<Cell> breadth_first_cells(const PipelineShape& s) {
  std::vector<Cell> out;
  for (int c = 0; c < s.chunks; ++c)
    for (int k = 0; k < s.micro_batches; ++k) out.push_back({Cell::Kind::forward, c, k});
  for (int c = s.chunks - 1; c >= 0; --c)
    for (int k = 0; k < s.micro_batches; ++k) out.push_back({Cell::Kind::backward, c, k});
  return out;
}

}  // namespace

PipelineSchedule breadth_first() {
  return {.name = "breadth_first",
          .summary = "all micro-batches through one stage after the other: fewest gathers",
          .cells = breadth_first_cells,
          .default_chunks = 2,
          .fixed_chunks = false};
}

}  // namespace trireme::schedule::pipelines
