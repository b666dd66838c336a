// DraftList: a list while passes still change it. Actions refer to each other by id, not by position. A pass is a
// function that adds one kind of action to the list and knows nothing of the other passes.
#pragma once

#include <map>
#include <vector>

#include "trireme/schedule/step_declaration.h"

namespace trireme::schedule {

constexpr int kTail = -2;  ///< completes_before: the first action after those of all units, or the list's end

/// An action of a DraftList. attach_values() sets its `completes_at`, `uses`, `bytes` and `cost`.
struct Draft : Action {
  int id = -1;
  int completes_before = -1;           ///< id of the draft that waits for it, or kTail; -1: synchronous
  bool before_reduction = false;       ///< unshard: goes before the previous unit's reduction
  int instance = 0;                    ///< unshard: its number among its group's unshards, from 0
  std::map<int, int> parameters = {};  ///< group -> unshard instance that a computation reads
};

struct DraftList {
  std::vector<Draft> drafts;
  int next_id = 0;
  int tail_id = -1;                 ///< id of the draft that kTail means
  Draft make(ActionKind kind, int owner, int micro_batch) {
    return {{.kind = kind, .owner = owner, .micro_batch = micro_batch, .queue = {traits_of(kind).queue}}, next_id++};
  }
};

/// Makes the first list: LoadBatch, and the computation of every cell, unit by unit.
DraftList lay_down_units(const StepDeclaration& step, const std::vector<Cell>& cells, bool train);
/// Adds a Recompute before each backward that needs one.
void insert_recomputation(DraftList& list, const StepDeclaration& step);
/// Adds sends and receives between pipeline ranks.
void insert_messages(DraftList& list, const StepDeclaration& step, const PipelineTiming& timing);
/// Adds all-gathers of weights before their readers.
void insert_unshards(DraftList& list, const StepDeclaration& step);
/// Adds reductions of gradients after their last writer.
void insert_reductions(DraftList& list, const StepDeclaration& step);
/// Makes a group's Steps, one for each tile.
std::vector<Draft> steps_of(DraftList& list, const StepDeclaration& step, int group);
/// Adds SumSquares for groups whose gradients are gone when the norm is gathered, as early as possible: those whose sum
/// rests in a tier. With StepDeclaration::steps_in_backward these are all groups, and their Steps follow at once.
void insert_early_steps(DraftList& list, const StepDeclaration& step);
/// Appends losses, norm, clip and optimizer; not clip and optimizer with StepDeclaration::steps_in_backward.
void append_tail(DraftList& list, const StepDeclaration& step, bool train);
/// Adds what each action reads and writes, and returns the finished list. `has_loss`: ListTraits.
Schedule attach_values(const DraftList& list, const StepDeclaration& step, bool has_loss = true);

/// The memory of a tier; own memory for `none`.
Memory memory_of(Tier tier);
/// Of a finished list: makes copies of the values that rest in a tier, or that `offload.activations` sends there, and
/// adds the Fetches and Evicts of these copies.
void move_values(Schedule& schedule, const OffloadSettings& offload);

}  // namespace trireme::schedule
