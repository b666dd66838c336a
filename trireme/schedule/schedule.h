// Schedule: one optimizer step on one rank, decided before it runs. It is data: a table of values (everything
// that outlives an action) and a list of actions that read and write them. The passes build it, the planner
// places its values, the validator proves it, the engine executes it, the renderer prints it.
//
// Nothing is ever freed by hand: a value lives from the start of its first writer to the completion of its last
// user. An asynchronous action starts where it stands in the list and has completed before action `completes_at`.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::schedule {

enum class ActionKind {
  load_batch,          ///< tokens and targets of a micro-batch
  unshard,             ///< all-gather of a group's parameters
  forward,
  recompute,           ///< forward again, for what backward needs
  backward,
  backward_input,      ///< the half of backward that the stage before waits for
  backward_weight,     ///< the half that only the optimizer waits for
  send,                ///< a boundary (or its gradient) to the next (previous) pipeline stage
  receive,
  reduce_gradient,     ///< fold the gradients of a group into the shards of their owners
  all_reduce_gradient, ///< fold the gradients of a group into every rank's copy
  gather_replicas,     ///< every replica has reduced a part of the shard: all parts to all
  reduce_replicas,     ///< sum the shard's gradient over replicas
  reduce_tied,         ///< sum the gradient of tied weights over the pipeline stages that hold them
  gather_loss,         ///< every rank's loss sums to every rank
  gather_norm,         ///< every rank's partial sums of squares to every rank
  clip,                ///< norm and the factor that clips it
  step,                ///< optimizer update of a group's shard
};

enum class ValueKind {
  // persistent
  weights,             ///< whole, in the compute dtype; where they are not sharded
  master,
  optimizer_first,     ///< the optimizer's state, as many tensors as its rule keeps
  optimizer_second,
  gradient,            ///< what the optimizer reads: whole or of the shard
  compute_shard,       ///< the shard in the compute dtype, for the next gather
  local_gradient,      ///< whole sum of this rank's micro-batches, which backward adds to (`local` accumulation)
  norm_partials,
  norm_all,
  loss,
  loss_all,
  save_copy,           ///< what this rank writes of a checkpoint, while it is written beside training
  // transient
  tokens,
  targets,
  documents,           ///< where documents begin in the sequences of a micro-batch, and positions counted from there
  parameters,
  boundary,
  boundary_gradient,
  saved,
  deferred,
  work,
  gradient_slot,
};

constexpr ValueKind kOptimizerState[] = {ValueKind::optimizer_first, ValueKind::optimizer_second};

/// Where a value's bytes lie.
enum class Memory {
  device,       ///< this rank's own
  symmetric,    ///< this rank's own, readable by the ranks of its host
  host_shared,  ///< one copy for the ranks of a host that gather together
  host_reduced, ///< one copy for the ranks of a host that reduce together
};

enum class Access { read, write, accumulate, consume };

/// What a byte is for, as `explain memory` sums it.
enum class Cause { weights, optimizer, gradients, unsharded, slots, saved, work, messages, save_copy };
constexpr int kNumCauses = 9;

/// A first-in first-out queue: computation, one per group of ranks, one per peer, direction and lane.
enum class QueueKind { compute, gather, reduce, replicas, tied, loss, norm, send, receive };

/// Activations and their gradients travel in lanes of their own, so that neither waits behind the other.
enum Lane : int { kActivations = 0, kGradients = 1 };

struct Queue {
  QueueKind kind = QueueKind::compute;
  int peer = -1;   ///< send, receive: index of the other pipeline rank
  int lane = 0;
  auto operator<=>(const Queue&) const = default;
};

struct Value {
  ValueKind kind;
  int owner = -1;         ///< unit or group, as the kind says; -1 for the step's own
  int micro_batch = -1;   ///< -1 for persistent values
  int instance = 0;       ///< which unshard of the step; which tensor of `saved`, `deferred` or `work`
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

/// `instance` of a tensor of saved or work: which pass over the unit made it, and its index.
constexpr int kMaxTensors = 64;
enum class Pass { forward, recompute, backward, backward_input, backward_weight };
constexpr int tensor_instance(Pass pass, int index) { return static_cast<int>(pass) * kMaxTensors + index; }
constexpr int tensor_index(int instance) { return instance % kMaxTensors; }

struct Use {
  int value;
  Access access;
};

struct Action {
  ActionKind kind;
  int owner = -1;         ///< unit (computation, messages) or group (parameters, gradients, step)
  int micro_batch = -1;
  Queue queue = {};
  int completes_at = -1;  ///< index of the action before which it has completed; -1: when it returns
  bool accumulate = false;  ///< gradients: on top of the step's earlier micro-batches
  bool talks_tp = false, talks_cp = false;  ///< computation that meets the unit's own groups inside
  int64_t bytes = 0;      ///< what travels: gathered, reduced or sent
  double cost = 0;        ///< of computation, in any unit of time
  int cell = -1;          ///< pipeline cell it belongs to
  std::vector<Use> uses;
};

struct Schedule {
  std::string name;                     ///< "train", "evaluate"
  std::vector<std::string> unit_names;  ///< of the whole model
  std::vector<std::string> group_names;
  std::vector<Value> values;
  std::vector<Action> actions;

  int find(ValueKind kind, int owner, int micro_batch, int instance = 0) const;  ///< -1 when absent
};

bool is_computation(ActionKind kind);   ///< of a unit
bool is_message(ActionKind kind);       ///< between pipeline stages
bool writes_gradient(ActionKind kind);  ///< of a unit's parameters, where the unit does it in this action

/// "Backward(block 3, mb 0)"
std::string describe(const Schedule& schedule, const Action& action);
const char* name_of(ActionKind kind);
std::string name_of(const Queue& queue);
const char* name_of(Cause cause);
const char* name_of(Memory memory);

}  // namespace trireme::schedule
