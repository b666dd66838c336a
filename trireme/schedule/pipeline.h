// Pipeline schedules: in which order each rank runs the forward and backward passes of its stages. A schedule is
// one function from (ranks, rank, chunks, micro-batches) to a list of cells, in a file of its own in pipelines/,
// and one row of the table in pipeline.cpp. Everything else - messages, gathers, reductions, memory - follows
// from the cells by the passes that all schedules share.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::schedule {

/// One pass of one micro-batch through one of a rank's stages.
struct Cell {
  enum class Kind { forward, backward, input, weight };  ///< backward = input and weight halves together
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
  bool v_shape = false;                               ///< chunk 1 runs back: the last stage lies on rank 0
  /// Why the shape cannot be scheduled, with the way out; empty when it can.
  std::string (*refusal)(const PipelineShape&) = nullptr;
};

std::span<const PipelineSchedule> pipeline_schedules();
/// Errors    UsageError naming the schedules there are
const PipelineSchedule& pipeline_schedule(std::string_view name);

/// Where the stages of a model lie.
struct StageMap {
  int ranks = 1, chunks = 1;
  bool v_shape = false;
  int num_stages() const { return ranks * chunks; }
  int stage(int rank, int chunk) const { return v_shape && chunk == 1 ? 2 * ranks - 1 - rank : chunk * ranks + rank; }
  int rank_of(int stage) const { return v_shape && stage >= ranks ? 2 * ranks - 1 - stage : stage % ranks; }
  int chunk_of(int stage) const { return stage / ranks; }
};

/// All ranks' cells, with the time at which each starts and ends when a forward, an input half and a weight half of
/// a stage take 1 each and messages nothing.
struct PipelineTiming {
  std::vector<std::vector<Cell>> cells;           ///< by rank
  std::vector<std::vector<double>> start, end;
  double length() const;
  double busy(int rank) const;
  /// Idle time over all ranks as a fraction of ranks x length.
  double idle_fraction() const;
};

/// Errors    UsageError with the schedule's refusal; InternalError when the cells wait for each other for ever
PipelineTiming time_pipeline(const PipelineSchedule& schedule, int ranks, int chunks, int micro_batches);
/// Forward passes only, for evaluation.
PipelineTiming time_forward_only(const PipelineSchedule& schedule, int ranks, int chunks, int micro_batches);

/// A boundary (lane 0) or its gradient (lane 1) on its way from one rank to another: who sends it at the end of
/// which cell, at the start of which cell the receiver is ready for it, who reads it, and before which cell the
/// sender's copy has gone. Receives of one lane are posted in the order of the sends.
struct Message {
  int lane, stage, micro_batch;   ///< stage that makes it
  int from, from_cell, gone_cell; ///< gone_cell: number of cells when only the end of the step waits for it
  int to, post_cell, to_cell;
};
std::vector<Message> plan_messages(const PipelineTiming& timing, const StageMap& stages);

/// Cuts units of the given costs into `stages` runs of neighbours with the smallest largest sum.
/// Returns the first unit of each stage, and the number of units. Every stage gets at least one.
/// Errors    UsageError when there are fewer units than stages
std::vector<int> balance_stages(std::span<const double> costs, int stages);

}  // namespace trireme::schedule
