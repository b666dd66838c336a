// What the pictures of a timeline have in common: spans become blocks. The units of a pipeline cell that follow each
// other without a wait are one block, so that a picture shows cells, and stays small however deep the model is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/schedule/render_timeline.h"

namespace trireme::schedule {

/// What a block is drawn as.
enum class Paint {
  forward,
  backward,
  input,
  weight,
  recompute,
  optimizer,  ///< clip and step
  load,       ///< of a batch
  // Lanes of communication:
  gather,
  reduce,     ///< over shards, replicas and tied stages
  send,
  receive,
  norm,       ///< of losses and the norm
};
constexpr int kNumPaints = 12;
constexpr Paint kLanes[] = {Paint::gather, Paint::reduce, Paint::send, Paint::receive, Paint::norm};

struct PaintStyle {
  std::string_view name;   ///< for legends and style sheets
  std::string_view about;  ///< for people
  char letter;             ///< in characters
};
const PaintStyle& style_of(Paint paint);

struct Block {
  Paint paint;
  double begin = 0, end = 0;
  int micro_batch = -1;
  int chunk = 0;
  std::vector<const TimelineSpan*> spans;  ///< of the row, which outlives the block
};

/// Computation of a row, left to right. Spans no further than `gap` seconds apart count as adjacent. What a cell
/// recomputes unit by unit is drawn together, in front of the backward pass that needs it.
std::vector<Block> compute_blocks(const Row& row, double gap);

/// Communication of a row in one lane; those no further than `gap` apart are one block.
std::vector<Block> lane_blocks(const Row& row, Paint lane, double gap);

/// "F12", the odd chunks of a rank in lower case: "f12".
std::string label_of(const Block& block);

/// Seconds in the unit that suits a step of `length` seconds.
struct TimeUnit {
  std::string_view name;
  double per_second;
};
TimeUnit time_unit(double length);
std::string time_text(double seconds, const TimeUnit& unit);
/// About `most` round times from 0 to `length`, in seconds.
std::vector<double> time_ticks(double length, int most);

}  // namespace trireme::schedule
