// Small steps to make schedules of: an embedding, some blocks and a head, divided as any strategy and pipeline
// divides them; and whole jobs of them, with the lists of all ranks.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "trireme/schedule/placement.h"
#include "trireme/schedule/queue_model.h"
#include "trireme/schedule/step_declaration.h"
#include "trireme/schedule/validate.h"

namespace trireme::schedule {

struct Example {
  enum class Strategy { ddp, zero1, zero2, zero3 };
  int blocks = 3;
  Strategy strategy = Strategy::zero3;
  int shards = 2, replicas = 1;     ///< data ranks
  int micro_batches = 2;
  bool ordered = true, local = false;
  bool mixed = true;                ///< two bytes an element to compute with, four to keep
  bool recompute = false;
  std::string pipeline = {};        ///< schedule; empty: no pipeline
  int stage_ranks = 1, chunks = 0;  ///< 0: the schedule's own number
  int tied_to_head = -1;            ///< group that the head reads too; 0: the embedding's
  std::set<int> frozen = {};        ///< groups that are not trained
  bool meets_tp = false;            ///< blocks meet their tensor-parallel ranks inside
  int units_per_stage = 0;          ///< 0: stages balanced over the blocks; otherwise so many units each
  Prefetch prefetch = {};
  int reduce_lag = 1;
  OffloadSettings offload = {};
  std::set<int> stays = {};         ///< groups that are not offloaded
  int64_t step_tile = 0;            ///< of each group
  bool steps_in_backward = false;

  int data_ranks() const { return shards * replicas; }
  int world_size() const { return stage_ranks * data_ranks(); }
};

StepDeclaration declare(const Example& example, int pipeline_rank = 0);
PipelineTiming timing_of(const Example& example, bool train = true);
/// "zero3 2x1, 4 micro-batches, 1f1b over 2"
std::string describe(const Example& example);

/// A step of `ranks` data ranks without a pipeline: full_shard or plain data parallelism.
StepDeclaration example_step(int blocks = 3, int ranks = 2, bool shard = true, int micro_batches = 2);
/// Every unit keeps nothing that it can compute again.
void recompute_everything(StepDeclaration& step);
Schedule training_schedule(const StepDeclaration& step);
Schedule evaluation_schedule(const StepDeclaration& step);

/// All ranks of an example: lists by pipeline rank, programs by global rank (pipeline outermost, then replicas).
struct Job {
  Example example;
  std::vector<Schedule> lists;
  std::vector<Arena> arenas;        ///< by pipeline rank; of lists that are placed
  std::vector<RankProgram> programs;
  int stage_of(int rank) const { return rank / example.data_ranks(); }
};
Job make_job(const Example& example, bool train = true);
/// What validate_ranks reads of a job.
std::vector<RankList> rank_lists(const Job& job);

}  // namespace trireme::schedule
