// Pipeline schedules: the order in which each rank runs the forward and backward passes of its stages. A schedule is a
// function from (ranks, rank, chunks, micro-batches) to a list of cells, in a file of pipelines/, and a row of the
// table in pipeline.cpp. Code that all schedules share (draft.h) derives messages, gathers, reductions and memory from
// the cells.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/given.h"

namespace trireme::schedule {

/// One pass of one micro-batch through one of a rank's stages.
struct Cell {
  /// backward: all gradients; input, weight: its halves, the gradients of activations and those of parameters.
  enum class Kind { forward, backward, input, weight };
  Kind kind;
  int chunk;        ///< which of the rank's stages
  int micro_batch;
  bool operator==(const Cell&) const = default;
};

struct PipelineShape {
  int ranks = 1;
  int rank = 0;
  int chunks = 1;         ///< stages a rank holds
  int micro_batches = 1;
};

struct PipelineSchedule {
  std::string_view name;
  std::string_view summary;                           ///< for help: one line
  std::vector<Cell> (*cells)(const PipelineShape&);
  int default_chunks = 1;
  bool fixed_chunks = true;                           ///< false: any number of chunks above 1
  bool v_shape = false;                               ///< chunk 1 lies in reverse order: the last stage is on rank 0
  bool in_rounds = false;                             ///< takes micro-batches in rounds of `ranks` (check_rounds)
  /// Fewest micro-batches with which no rank idles longer than the schedule requires.
  int (*fills_with)(int ranks) = [](int ranks) { return ranks; };
};

std::span<const PipelineSchedule> pipeline_schedules();
/// Null if there is none of that name.
const PipelineSchedule* find_pipeline_schedule(std::string_view name);
/// Errors    UsageError with the names of all schedules
const PipelineSchedule& pipeline_schedule(std::string_view name);

/// The micro-batches of a step, over all ranks of the mesh.
struct PipelineLoad {
  int64_t ranks = 1;             ///< of the pipeline: mesh.pp
  int64_t data_ranks = 1;        ///< number of pipelines
  int64_t micro_batches = 1;     ///< of the step, over all data ranks
  int64_t micro_batch_size = 1;  ///< sequences
};
/// Why the schedule cannot run the load, and what to change; nothing if it can.
std::optional<config::Refusal> check_rounds(const PipelineSchedule& schedule, const PipelineLoad& load);

/// Where the stages of a model lie.
struct StageMap {
  int ranks = 1, chunks = 1;
  bool v_shape = false;
  int num_stages() const { return ranks * chunks; }
  int stage(int rank, int chunk) const { return v_shape && chunk == 1 ? 2 * ranks - 1 - rank : chunk * ranks + rank; }
  int rank_of(int stage) const { return v_shape && stage >= ranks ? 2 * ranks - 1 - stage : stage % ranks; }
  int chunk_of(int stage) const { return stage / ranks; }
};

/// All ranks' cells, and when each starts and ends: a stage's forward, input half and weight half take 1 each, and
/// messages take no time.
struct PipelineTiming {
  std::vector<std::vector<Cell>> cells;           ///< by rank
  std::vector<std::vector<double>> start, end;
  double length() const;
  double busy(int rank) const;
  /// Idle time over all ranks as a fraction of ranks x length.
  double idle_fraction() const;
};

/// Errors    UsageError: a number of stages on each rank that the schedule does not hold
void check_chunks(const PipelineSchedule& schedule, int chunks);

/// Errors    UsageError if check_chunks or check_rounds refuses; InternalError if the cells wait for each other forever
PipelineTiming time_pipeline(const PipelineSchedule& schedule, int ranks, int chunks, int micro_batches);
/// Forward passes only, for evaluation.
PipelineTiming time_forward_only(const PipelineSchedule& schedule, int ranks, int chunks, int micro_batches);

/// A boundary (lane 0) or its gradient (lane 1) that one rank sends to another. Rank `from` sends it at the end of
/// `from_cell`; the send is complete before `gone_cell`. Rank `to` posts the receive at the start of `post_cell` and
/// reads the message in `to_cell`. Receives of one lane are posted in the order of the sends.
struct Message {
  int lane, stage, micro_batch;  ///< stage: that computes it
  int from, from_cell, gone_cell;  ///< gone_cell: the number of cells if only the end of the step waits for it
  int to, post_cell, to_cell;
};
std::vector<Message> plan_messages(const PipelineTiming& timing, const StageMap& stages);

/// Cuts units of the given costs into `stages` runs of neighbours, so that the largest sum of costs is smallest. Every
/// stage gets at least one unit. Returns the first unit of each stage, then the number of units.
/// Errors    UsageError if there are fewer units than stages
std::vector<int> balance_stages(std::span<const double> costs, int stages);

}  // namespace trireme::schedule
