// What all pictures of a timeline share: spans become blocks. Units of a pipeline cell that run without a wait between
// them are one block. So a picture shows cells and stays small, also for deep models.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/schedule/render_timeline.h"

namespace trireme::schedule {

constexpr int kNumPaints = 14;
constexpr Paint kLanes[] = {Paint::gather, Paint::reduce, Paint::send, Paint::receive,
                            Paint::norm,   Paint::fetch,  Paint::evict};

struct PaintStyle {
  std::string_view name;   ///< for legends and style sheets
  std::string_view about;  ///< explanation for people
  char letter;             ///< for pictures in characters
};
const PaintStyle& style_of(Paint paint);

struct Block {
  Paint paint;
  double begin = 0, end = 0;
  int micro_batch = -1;
  int chunk = 0;
  std::vector<const TimelineSpan*> spans;  ///< of the row, which outlives the block
};

/// A row's computation as blocks, left to right. Spans at most `gap` seconds apart count as adjacent. All that a cell
/// recomputes is drawn as one block, before the backward pass.
std::vector<Block> compute_blocks(const Row& row, double gap);

/// A row's communication in one lane as blocks; spans at most `gap` seconds apart are one block.
std::vector<Block> lane_blocks(const Row& row, Paint lane, double gap);

/// Letter and micro-batch, "F12"; lower case for a rank's odd chunks, "f12".
std::string label_of(const Block& block);

/// The unit of time (s, ms, ...) that suits a step of `length` seconds.
struct TimeUnit {
  std::string_view name;
  double per_second;
};
TimeUnit time_unit(double length);
std::string time_text(double seconds, const TimeUnit& unit);
/// About `most` round times for an axis from 0 to `length`, in seconds.
std::vector<double> time_ticks(double length, int most);

}  // namespace trireme::schedule
