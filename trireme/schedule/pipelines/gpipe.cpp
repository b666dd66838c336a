// GPipe: all forwards, then all backwards. Idle (p-1)/(m+p-1); every micro-batch's activations are held.
// Source: arXiv 1811.06965.
#include "trireme/schedule/pipelines/pipelines.h"

namespace trireme::schedule::pipelines {
namespace {

std::vector<Cell> gpipe_cells(const PipelineShape& s) {
  std::vector<Cell> out;
  for (int k = 0; k < s.micro_batches; ++k) out.push_back({Cell::Kind::forward, 0, k});
  for (int k = 0; k < s.micro_batches; ++k) out.push_back({Cell::Kind::backward, 0, k});
  return out;
}

}  // namespace

PipelineSchedule gpipe() {
  return {.name = "gpipe", .summary = "all forwards, then all backwards", .cells = gpipe_cells};
}

}  // namespace trireme::schedule::pipelines
