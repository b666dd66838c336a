#include "trireme/schedule/render_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

namespace trireme::schedule {
namespace {

Paint paint_of(const TimelineSpan& s) { return traits_of(s.kind).paint; }

// What belongs to one block: a cell, or all of the optimizer's work.
int cell_key(const TimelineSpan& s) {
  if (is_computation(s.kind)) return s.cell;
  return s.kind == ActionKind::load_batch ? -3 : -2;
}

// Spans of one cell without a wait between them become two blocks: what is recomputed, then the rest.
void close(std::vector<const TimelineSpan*>& open, std::vector<Block>& out) {
  if (open.empty()) return;
  Block again{.paint = Paint::recompute}, rest{.paint = Paint::optimizer};
  double recomputing = 0;
  for (const TimelineSpan* s : open) {
    const bool recompute = s->kind == ActionKind::recompute;
    if (recompute) recomputing += s->seconds();
    Block& block = recompute ? again : rest;
    // A unit without halves runs its whole backward in an input cell, which is still drawn as an input half.
    const bool halves = rest.paint == Paint::input && s->kind == ActionKind::backward;
    if (!recompute && !halves) rest.paint = paint_of(*s);
    block.micro_batch = s->micro_batch;
    block.chunk = s->chunk;
    block.spans.push_back(s);
  }
  again.begin = open.front()->begin;
  again.end = rest.begin = again.begin + recomputing;
  rest.end = open.back()->end;
  if (rest.spans.empty()) again.end = rest.end;
  if (!again.spans.empty()) out.push_back(std::move(again));
  if (!rest.spans.empty()) out.push_back(std::move(rest));
  open.clear();
}

}  // namespace

const PaintStyle& style_of(Paint paint) {
  static constexpr PaintStyle kStyles[kNumPaints] = {{"forward", "forward", 'F'},
                                                     {"backward", "backward", 'B'},
                                                     {"input", "backward, input half", 'I'},
                                                     {"weight", "backward, weight half", 'W'},
                                                     {"recompute", "recompute", 'R'},
                                                     {"optimizer", "optimizer", 'S'},
                                                     {"load", "load batch", 'L'},
                                                     {"gather", "gather", 'u'},
                                                     {"reduce", "reduce", 'r'},
                                                     {"send", "send", '>'},
                                                     {"receive", "receive", '<'},
                                                     {"norm", "loss and norm", 'n'},
                                                     {"fetch", "fetch from host or disk", 'f'},
                                                     {"evict", "evict to host or disk", 'e'}};
  return kStyles[static_cast<int>(paint)];
}

std::vector<Block> compute_blocks(const Row& row, double gap) {
  std::vector<Block> blocks;
  std::vector<const TimelineSpan*> open;
  int key = -1;
  for (const TimelineSpan& s : row.spans) {
    if (s.queue.kind != QueueKind::compute || s.seconds() <= 0) continue;
    const int next = cell_key(s);
    if (!open.empty() && (next != key || s.begin - open.back()->end > gap)) close(open, blocks);
    open.push_back(&s);
    key = next;
  }
  close(open, blocks);
  return blocks;
}

std::vector<Block> lane_blocks(const Row& row, Paint lane, double gap) {
  std::vector<const TimelineSpan*> spans;
  for (const TimelineSpan& s : row.spans)
    if (s.queue.kind != QueueKind::compute && s.seconds() > 0 && paint_of(s) == lane) spans.push_back(&s);
  // A lane of the picture holds several queues; only each queue by itself is in order.
  std::stable_sort(spans.begin(), spans.end(),
                   [](const TimelineSpan* a, const TimelineSpan* b) { return a->begin < b->begin; });
  std::vector<Block> blocks;
  for (const TimelineSpan* s : spans) {
    if (blocks.empty() || s->begin - blocks.back().end > gap)
      blocks.push_back({.paint = lane, .begin = s->begin, .end = s->end, .micro_batch = s->micro_batch});
    blocks.back().end = std::max(blocks.back().end, s->end);
    blocks.back().spans.push_back(s);
  }
  return blocks;
}

std::string label_of(const Block& block) {
  const char letter = style_of(block.paint).letter;
  const int shown = block.chunk % 2 == 1 ? std::tolower(letter) : letter;
  const std::string number = block.micro_batch >= 0 ? std::to_string(block.micro_batch) : "";
  return static_cast<char>(shown) + number;
}

TimeUnit time_unit(double length) {
  return length < 1e-3 ? TimeUnit{"us", 1e6} : length < 1 ? TimeUnit{"ms", 1e3} : TimeUnit{"s", 1};
}

std::string time_text(double seconds, const TimeUnit& unit) {
  return fmt::format("{:.4g} {}", seconds * unit.per_second, unit.name);
}

std::vector<double> time_ticks(double length, int most) {
  if (length <= 0) return {0};
  const double least = length / most;
  double distance = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {2.0, 2.5, 2.0})  // 1, 2, 5, 10
    if (distance < least * (1 - 1e-9)) distance *= factor;
  std::vector<double> ticks;
  for (int i = 0; i * distance <= length * (1 + 1e-9); ++i) ticks.push_back(i * distance);
  return ticks;
}

}  // namespace trireme::schedule
