// ZB-H1: 1F1B with backward in two halves. The input half's result is sent at once; weight halves fill idle time. A
// third of 1F1B's idle time is left, (p-1)/(3m+p-1) at F = I = W. It keeps as many input
// halves waiting as 1F1B; a rank r also keeps what its r postponed weight halves read.
// Source: arXiv 2401.10241.
#include <algorithm>

#include "trireme/schedule/pipelines/pipelines.h"

namespace trireme::schedule::pipelines {
namespace {

std::vector<Cell> zb_h1_cells(const PipelineShape& s) {
  const int m = s.micro_batches, ahead = std::min(s.ranks - 1 - s.rank, m);
  std::vector<Cell> out;
  int weights = 0;
  for (int k = 0; k < ahead; ++k) out.push_back({Cell::Kind::forward, 0, k});
  for (int k = 0; k < m; ++k) {
    if (ahead + k < m) out.push_back({Cell::Kind::forward, 0, ahead + k});
    out.push_back({Cell::Kind::input, 0, k});
    // Rank r postpones r weight halves: they fill the waits before its last input halves.
    if (k >= s.rank) out.push_back({Cell::Kind::weight, 0, weights++});
  }
  while (weights < m) out.push_back({Cell::Kind::weight, 0, weights++});
  return out;
}

}  // namespace

PipelineSchedule zb_h1() {
  return {.name = "zb_h1",
          .summary = "1F1B with weight gradients in the gaps: a third of the idle time",
          .cells = zb_h1_cells};
}

}  // namespace trireme::schedule::pipelines
