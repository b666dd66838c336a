// Interleaved 1F1B: each rank holds v stages, p apart, and 1F1B runs over all of them. Idle (p-1)/(v m + p-1).
// Source: arXiv 2104.04473 (Megatron-LM).
#include <algorithm>

#include "trireme/schedule/pipelines/pipelines.h"

namespace trireme::schedule::pipelines {
namespace {

std::vector<Cell> interleaved_1f1b_cells(const PipelineShape& s) {
  const int p = s.ranks, v = s.chunks, total = s.micro_batches * v;
  const auto micro_batch = [&](int k) { return k / (p * v) * p + k % p; };
  const auto forward = [&](int k) { return Cell{Cell::Kind::forward, k / p % v, micro_batch(k)}; };
  const auto backward = [&](int k) { return Cell{Cell::Kind::backward, v - 1 - k / p % v, micro_batch(k)}; };
  const int ahead = std::min((v - 1) * p + 2 * (p - 1 - s.rank), total);
  std::vector<Cell> out;
  for (int k = 0; k < ahead; ++k) out.push_back(forward(k));
  for (int k = 0; k < total; ++k) {
    if (ahead + k < total) out.push_back(forward(ahead + k));
    out.push_back(backward(k));
  }
  return out;
}

}  // namespace

PipelineSchedule interleaved_1f1b() {
  return {.name = "interleaved_1f1b",
          .summary = "1F1B over several stages a rank: less idle time, more messages",
          .cells = interleaved_1f1b_cells,
          .default_chunks = 2,
          .fixed_chunks = false,
          .in_rounds = true};
}

}  // namespace trireme::schedule::pipelines
