// 1F1B: rank r of p runs p-1-r forwards, then one forward and one backward in turn. It idles as long as GPipe, but
// holds the activations of at most min(p - r, m) of the m micro-batches.
// Source: arXiv 1806.03377 (PipeDream), 2104.04473 (Megatron-LM).
#include <algorithm>

#include "trireme/schedule/pipelines/pipelines.h"

namespace trireme::schedule::pipelines {
namespace {

std::vector<Cell> one_f_one_b_cells(const PipelineShape& s) {
  std::vector<Cell> out;
  const int ahead = std::min(s.ranks - 1 - s.rank, s.micro_batches);
  for (int k = 0; k < ahead; ++k) out.push_back({Cell::Kind::forward, 0, k});
  for (int k = 0; k < s.micro_batches; ++k) {
    if (ahead + k < s.micro_batches) out.push_back({Cell::Kind::forward, 0, ahead + k});
    out.push_back({Cell::Kind::backward, 0, k});
  }
  return out;
}

}  // namespace

PipelineSchedule one_f_one_b() {
  return {.name = "1f1b", .summary = "one forward, one backward: few activations held", .cells = one_f_one_b_cells};
}

}  // namespace trireme::schedule::pipelines
