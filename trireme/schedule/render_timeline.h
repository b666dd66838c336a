// Timeline: when every rank does what, to look at: `trireme explain schedule` draws what the queue model predicts and
// `profile.schedule` what a step took, with the same rows and in the same way. A row is one rank; its spans carry their
// queue, so that computation and communication become lanes of the row.
//
// An action on a communication queue is posted, waits until it is at the head of its queue and until its partners
// have come, and then runs: `posted` is the first moment, `begin` the last. Pictures show what runs.
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
  double posted = 0;  ///< when the rank came to it
  double begin = 0, end = 0;  ///< when it ran; equal: it took no time
  ActionKind kind;
  Queue queue = {};
  int action = -1;  ///< index in the rank's list
  int owner = -1;  ///< unit or group, as the action says
  int micro_batch = -1;
  int cell = -1;  ///< pipeline cell
  int chunk = 0;  ///< computation: which of the rank's stages
  int peer_rank = -1;  ///< send, receive: global rank of the other end
  int64_t bytes = 0;  ///< what travels
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
  double length() const;  ///< last end of all rows
};

/// What the queue model predicts. `costs` are those of the simulation. `ranks` names the programs that become rows;
/// empty: all.
Timeline timeline_of(const std::vector<RankProgram>& programs, const Simulation& simulation, const Costs& costs,
                     std::span<const int> ranks = {});

/// When an action of a step was started and when it was complete. Seconds of one clock for all ranks.
struct Measured {
  int action;  ///< index in the list
  double begin, end;
};

/// What a step took on `rank`: a timeline of one row. Rows of several ranks are put together by the caller, with
/// begin = 0 at the same moment. `stages` are the global ranks of the pipeline by pipeline rank, the peers of
/// messages; empty: they are the same numbers.
Timeline timeline_of_measured(const Schedule& schedule, std::span<const Measured> measured, int rank,
                              std::span<const int> stages = {});

/// Idle time of the computation, in two measures: inside a rank's own span, from its first start to its last end
/// (what zero-bubble schedules claim to be zero), and of the whole step (what the step costs).
struct IdleReport {
  struct Rank {
    int rank = 0;
    double begin = 0, end = 0;  ///< own span, seconds
    double busy = 0;  ///< of it computing, seconds
    double fraction = 0;  ///< of the own span idle
    double fraction_of_step = 0;  ///< of the step idle
    double idle() const { return end - begin - busy; }
  };
  std::vector<Rank> ranks;  ///< in the order of the rows
  double length = 0;  ///< of the step, seconds
  double fraction = 0;  ///< idle of ranks x length
};
IdleReport idle_report(const Timeline& timeline);

/// The fraction of ranks x length that a schedule idles by its paper's formula: equal stages, forward = input half =
/// weight half, free messages. Empty when there is none for the shape: zb_v needs m >= 2p - 1, the others m >= p.
std::optional<double> idle_formula(const std::string& schedule, int ranks, int chunks, int micro_batches);

/// The end of a step meets in the sums of loss and gradient norm, which all ranks need before they clip: when the
/// first rank came there, when the last, and when all could go on. Empty when nobody waits for anybody.
struct Barrier {
  double first = 0, last = 0, end = 0;
  int first_rank = -1, last_rank = -1;
};
std::optional<Barrier> norm_barrier(const Timeline& timeline);

struct TimelineTextOptions {
  int width = 110;  ///< columns, margins included; at least 60
  bool unicode = true;  ///< otherwise ASCII
  int communication_rows = 16;  ///< up to so many ranks have a second line for communication
};

/// A picture in characters: a line a rank, as papers on pipelines draw them (F0 F1 B0), and one for communication.
/// Lines end with a newline and are no wider than `width`.
std::string render_timeline_text(const Timeline& timeline, const TimelineTextOptions& options = {});

/// A complete SVG document without scripts or outside references; follows the reader's light or dark colours. The
/// units, times and bytes of each block stand in its <title>.
std::string render_timeline_svg(const Timeline& timeline);

/// Chrome trace events (JSON), for Perfetto or chrome://tracing: a process a rank, a thread a queue, every action
/// once, an arrow from each send to its receive.
std::string render_timeline_trace(const Timeline& timeline);

}  // namespace trireme::schedule
