// Schedule: one optimizer step on one rank, decided before it runs. It is data: a table of values (everything
// that outlives an action) and a list of actions that read and write them. The passes build it, the planner
// places its values, the validator proves it, the engine executes it, the renderer prints it.
//
// Nothing is ever freed by hand: a value lives from the start of its first writer to the completion of its last
// user. An asynchronous action starts where it stands in the list and has completed before action `completes_at`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::schedule {

enum class ActionKind {
  load_batch,       ///< tokens and targets of a micro-batch
  unshard,          ///< all-gather of a group's parameters
  forward,
  recompute,        ///< forward again, for what backward needs
  backward,
  reduce_gradient,  ///< fold the gradients of a group into its owner's shard (or all-reduce)
  gather_loss,      ///< every rank's loss sums to every rank
  gather_norm,      ///< every rank's partial sums of squares to every rank
  clip,             ///< norm and the factor that clips it
  step,             ///< optimizer update of a group's shard
};

enum class ValueKind {
  master,
  exp_avg,
  exp_avg_sq,
  gradient_shard,
  compute_shard,
  norm_partials,
  norm_all,
  loss,
  loss_all,  // persistent
  tokens,
  targets,
  parameters,
  boundary,
  boundary_gradient,
  saved,
  work,
  gradient_slot,                 // transient
};

/// Where a value's bytes lie.
enum class Memory {
  device,       ///< this rank's own
  symmetric,    ///< this rank's own, readable by the ranks of its host
  host_shared,  ///< one copy for the ranks of a host
};

enum class Access { read, write, accumulate, consume };

/// What a byte is for, as `explain memory` sums it.
enum class Cause { weights, optimizer, gradients, unsharded, slots, saved, work, messages };

enum class Queue { compute, gather, reduce };

struct Value {
  ValueKind kind;
  int owner = -1;         ///< unit or group, as the kind says; -1 for the step's own
  int micro_batch = -1;   ///< -1 for persistent values
  int instance = 0;       ///< which unshard of the step, which tensor of `saved` or `work`
  std::string label;      ///< "saved(block 3, mb 0).qkv"
  int64_t bytes = 0;
  Memory memory = Memory::device;
  Cause cause = Cause::work;
  bool persistent = false;
  int takes_over = -1;    ///< value whose bytes this one consumes

  // Set by place():
  int first = -1;         ///< index of the first action that uses it
  int last = -1;          ///< index of the last action during which it must stay
  int64_t offset = -1;    ///< in its memory region, bytes
};

struct Use {
  int value;
  Access access;
};

struct Action {
  ActionKind kind;
  int owner = -1;         ///< unit (forward, recompute, backward) or group (unshard, reduce, step)
  int micro_batch = -1;
  Queue queue = Queue::compute;
  int completes_at = -1;  ///< index of the action before which it has completed; -1: when it returns
  bool accumulate = false;  ///< reduce_gradient: on top of the step's earlier micro-batches
  std::vector<Use> uses;
};

struct Schedule {
  std::string name;                     ///< "train", "evaluate"
  std::vector<std::string> unit_names;
  std::vector<std::string> group_names;
  std::vector<Value> values;
  std::vector<Action> actions;

  int find(ValueKind kind, int owner, int micro_batch, int instance = 0) const;  ///< -1 when absent
};

/// "Backward(block 3, mb 0)"
std::string describe(const Schedule& schedule, const Action& action);
const char* name_of(ActionKind kind);
const char* name_of(Queue queue);
const char* name_of(Cause cause);
const char* name_of(Memory memory);

}  // namespace trireme::schedule
