// The list while passes still move it: actions name their partners by id, not by position. Passes are functions
// from a list to a list; each knows one thing and none knows the others.
#pragma once

#include <map>
#include <vector>

#include "trireme/schedule/schedule.h"
#include "trireme/schedule/step_declaration.h"

namespace trireme::schedule {

constexpr int kTail = -2;  ///< completes_before: the actions after the last unit's

struct Draft {
  int id = -1;
  ActionKind kind;
  int owner = -1;
  int micro_batch = -1;
  Queue queue = {};
  int completes_before = -1;        ///< id of another draft, or kTail; -1: when it returns
  bool accumulate = false;
  bool before_reduction = false;    ///< unshard: stands before the reduction of the unit before it
  int instance = 0;                 ///< unshard: which of the group
  int cell = -1;                    ///< pipeline cell
  std::map<int, int> parameters;    ///< group -> unshard instance that a computation reads
};

struct DraftList {
  std::vector<Draft> drafts;
  int next_id = 0;
  int tail_id = -1;                 ///< what kTail stands for
  Draft make(ActionKind kind, int owner, int micro_batch) {
    Draft d{.kind = kind, .owner = owner, .micro_batch = micro_batch};
    d.id = next_id++;
    return d;
  }
};

/// LoadBatch and the computation of every cell, unit by unit.
DraftList lay_down_units(const StepDeclaration& step, const std::vector<Cell>& cells, bool train);
/// A Recompute before each backward that needs one.
void insert_recomputation(DraftList& list, const StepDeclaration& step);
/// Sends and receives between pipeline ranks.
void insert_messages(DraftList& list, const StepDeclaration& step, const PipelineTiming& timing);
/// Weights put together before their readers.
void insert_unshards(DraftList& list, const StepDeclaration& step);
/// Gradients folded after their last writer.
void insert_reductions(DraftList& list, const StepDeclaration& step);
/// Losses, norm, clip, optimizer.
void append_tail(DraftList& list, const StepDeclaration& step, bool train);
/// What each action reads and writes: the finished list.
Schedule attach_values(const DraftList& list, const StepDeclaration& step, bool train);

}  // namespace trireme::schedule
