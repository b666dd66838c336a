// ZB-V: rank r of p holds two stages, r and 2p-1-r, so the last stage is on the same rank as the first. With m >= 2p-1
// micro-batches and F = I = W, no rank idles within its own span. It holds as many activations as 1F1B.
// Source: arXiv 2401.10241, section 6.
#include <algorithm>

#include "trireme/schedule/pipelines/pipelines.h"

namespace trireme::schedule::pipelines {
namespace {

using Kind = Cell::Kind;

// Lays out cells for n >= 2p-1 micro-batches, and keeps those of the m micro-batches that exist.
class Writer {
 public:
  explicit Writer(int micro_batches) : m_(micro_batches) {}
  void add(Kind kind, int chunk) {
    const int k = next_[static_cast<int>(kind)][chunk]++;
    if (k < m_) out_.push_back({kind, chunk, k});
  }
  int count(Kind kind, int chunk) const { return next_[static_cast<int>(kind)][chunk]; }
  std::vector<Cell> take() { return std::move(out_); }

 private:
  int m_;
  int next_[4][2] = {};
  std::vector<Cell> out_;
};

std::vector<Cell> zb_v_cells(const PipelineShape& s) {
  const int p = s.ranks, r = s.rank, n = std::max(2 * p - 1, s.micro_batches);
  Writer w(s.micro_batches);
  const auto finish = [&](int chunk) {  // backward of one micro-batch, whole
    w.add(Kind::input, chunk);
    w.add(Kind::weight, chunk);
  };
  for (int i = 0; i < 2 * (p - r) - 1; ++i) w.add(Kind::forward, 0);
  for (int i = 0; i < r; ++i) w.add(Kind::forward, 1), w.add(Kind::forward, 0);
  for (int i = 0; i < p - r; ++i) w.add(Kind::forward, 1), finish(1);
  while (w.count(Kind::forward, 1) < w.count(Kind::forward, 0) || w.count(Kind::forward, 0) < n) {
    if (w.count(Kind::forward, 0) < n) w.add(Kind::forward, 0);
    finish(0);
    w.add(Kind::forward, 1);
    finish(1);
  }
  for (int i = 0; i < r; ++i) w.add(Kind::input, 0), w.add(Kind::input, 1);
  for (int i = 0; i < p - r; ++i) finish(0);
  while (w.count(Kind::weight, 1) < w.count(Kind::input, 1)) w.add(Kind::weight, 1);
  while (w.count(Kind::weight, 0) < w.count(Kind::input, 0)) w.add(Kind::weight, 0);
  return w.take();
}

}  // namespace

PipelineSchedule zb_v() {
  return {.name = "zb_v",
          .summary = "zero bubble in a V: no idle time inside a rank's span; first and last stage on rank 0",
          .cells = zb_v_cells,
          .default_chunks = 2,
          .v_shape = true,
          .fills_with = [](int ranks) { return 2 * ranks - 1; }};
}

}  // namespace trireme::schedule::pipelines
