// Timeline: when each rank runs each action. `trireme explain schedule` draws the queue model's prediction, and
// `profile.schedule` draws a measured step in the same way. A row is one rank. A span knows its queue, so computation
// and communication become lanes of the row.
//
// An action on a communication queue is posted (`posted`). It waits until it is at the head of its queue and its
// partners have arrived. Then it runs (from `begin`). Pictures show only the time that it runs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/schedule/queue_model.h"
#include "trireme/schedule/schedule.h"

namespace trireme::schedule {

/// One action of one rank. Times are seconds since the step began.
struct TimelineSpan {
  double posted = 0;  ///< when the rank reached the action in its list
  double begin = 0, end = 0;  ///< when it ran; equal if it took no time
  ActionKind kind;
  Queue queue = {};
  int action = -1;  ///< index in the rank's list
  int owner = -1;  ///< Action::owner
  int micro_batch = -1;
  int cell = -1;  ///< pipeline cell
  int chunk = 0;  ///< computation: which of the rank's stages
  int peer_rank = -1;  ///< send, receive: global rank of the other end
  int64_t bytes = 0;  ///< gathered, reduced or sent
  std::string label;  ///< "Backward(block 3, mb 0)"

  double seconds() const { return end - begin; }
};

struct Row {
  int rank = 0;  ///< global
  std::vector<TimelineSpan> spans;  ///< in the order of the list
};

struct Timeline {
  std::string title;  ///< over the picture; may be empty
  std::vector<Row> rows;
  double length() const;  ///< the last end in any row
};

/// The queue model's prediction. `costs` are those of the simulation; the programs in `ranks` become rows (empty: all).
Timeline timeline_of(const std::vector<RankProgram>& programs, const Simulation& simulation, const Costs& costs,
                     std::span<const int> ranks = {});

/// When an action of a step was started and when it was complete, in seconds of a clock that all ranks share.
struct Measured {
  int action;  ///< index in the list
  double begin, end;
};

/// The measured step of `rank`, a timeline of one row. The caller joins the rows of several ranks; time 0 must be the
/// same moment for all. `stages` holds the global rank of each pipeline rank, for the peers of messages; empty: both
/// numbers are equal.
Timeline timeline_of_measured(const Schedule& schedule, std::span<const Measured> measured, int rank,
                              std::span<const int> stages = {});

/// Idle time of the computation, in two measures: within a rank's own span, from its first start to its last end (zero
/// in zero-bubble schedules), and within the whole step.
struct IdleReport {
  struct Rank {
    int rank = 0;
    double begin = 0, end = 0;  ///< the rank's own span, seconds
    double busy = 0;  ///< seconds of computation in this span
    double fraction = 0;  ///< idle part of the own span
    double fraction_of_step = 0;  ///< idle part of the step
    double idle() const { return end - begin - busy; }
  };
  std::vector<Rank> ranks;  ///< in the order of the rows
  double length = 0;  ///< of the step, seconds
  double fraction = 0;  ///< idle part of ranks x length
};
IdleReport idle_report(const Timeline& timeline);

/// The idle part of ranks x length by the formula in the schedule's paper. It assumes equal stages, messages that take
/// no time, and equal times for forward, input half and weight half. With p ranks and m micro-batches, zb_v's formula
/// needs m >= 2p - 1, and the others m >= p; else empty.
std::optional<double> idle_formula(const std::string& schedule, int ranks, int chunks, int micro_batches);

/// At the end of a step all ranks wait for the sums of loss and gradient norm, which clipping needs. `first` and
/// `last`: when the first and the last rank arrived; `end`: when all could continue. Empty if no rank waits.
struct Barrier {
  double first = 0, last = 0, end = 0;
  int first_rank = -1, last_rank = -1;
};
std::optional<Barrier> norm_barrier(const Timeline& timeline);

struct TimelineTextOptions {
  int width = 110;  ///< columns, margins included; at least 60
  bool unicode = true;  ///< otherwise ASCII
  int communication_rows = 16;  ///< up to this many ranks, each has a second line for communication
};

/// A picture in characters, as papers on pipelines draw it (F0 F1 B0). A rank has a line for computation and a line for
/// communication. Lines end with a newline and are at most `width` wide.
std::string render_timeline_text(const Timeline& timeline, const TimelineTextOptions& options = {});

/// A complete SVG document without scripts or external references, in the reader's light or dark colours. The <title>
/// of each block holds its units, times and bytes.
std::string render_timeline_svg(const Timeline& timeline);

/// Chrome trace events (JSON), for Perfetto or chrome://tracing: a process for each rank, a thread for each queue,
/// every action once, an arrow from each send to its receive.
std::string render_timeline_trace(const Timeline& timeline);

}  // namespace trireme::schedule
