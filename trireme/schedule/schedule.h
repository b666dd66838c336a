// Schedule: one optimizer step on one rank, decided before it runs. It is data: a table of values (tensors that outlive
// an action) and a list of actions that read and write them. Passes (draft.h) build it, placement gives values their
// bytes, the validator checks it, the engine executes it, and renderers print it.
//
// Nothing is freed explicitly: a value lives from the start of its first writer to the completion of its last user. An
// asynchronous action starts at its place in the list and is complete before the action `completes_at` starts.
#pragma once

#include <compare>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "trireme/base/enum_array.h"
#include "trireme/comm/unit_axes.h"
#include "trireme/schedule/action_kinds.h"

namespace trireme::schedule {

enum class ValueKind {
  // persistent
  weights,  ///< whole, in the compute dtype; only if they are not sharded
  master,  ///< weights in the state dtype, which the optimizer updates
  optimizer_first,  ///< the optimizer's state tensors, as many as it keeps
  optimizer_second,
  compensation,  ///< what rounding the weights has lost
  gradient,  ///< what the optimizer reads: whole or of the shard
  compute_shard,  ///< the shard in the compute dtype, for the next gather
  local_gradient,  ///< unsharded sum over this rank's micro-batches (`local` accumulation)
  norm_partials,  ///< partial sums of squares of this rank's gradients
  norm_all,  ///< the sums of squares of all ranks
  loss,
  loss_all,  ///< the loss sums of all ranks
  save_copy,  ///< what this rank writes to a checkpoint while training goes on
  // transient
  tokens,
  targets,
  documents,  ///< where documents begin in each sequence, and positions counted from there
  parameters,  ///< a group's gathered weights
  boundary,  ///< a unit's output, the next unit's input
  boundary_gradient,
  saved,  ///< for backward
  deferred,  ///< from the input half of backward to its weight half
  work,  ///< scratch
  step_work,  ///< scratch of an optimizer that looks at whole tensors
  gradient_slot,  ///< a group's gradient of one micro-batch, before its reduction
  // held
  cache,  ///< a block's keys and values of the texts that are generated
};

constexpr ValueKind kOptimizerState[] = {ValueKind::optimizer_first, ValueKind::optimizer_second};

/// Where a value's bytes lie.
enum class Memory {
  own,  ///< private to this rank; on the GPU if it uses one
  symmetric,  ///< of this rank, but the other ranks of its host can read it
  host_shared,  ///< one copy for the ranks of a host that gather together
  host_reduced,  ///< one copy for the ranks of a host that reduce together
  host,  ///< of this rank, in its host's memory: what it does not need at once
  disk,  ///< likewise, in a file
};

/// True where values only rest: actions use copies of them in memory of the rank.
constexpr bool is_tier(Memory memory) { return memory == Memory::host || memory == Memory::disk; }
/// True where other ranks reach a value by its offset, which therefore is the same on all of them.
constexpr bool is_shared(Memory memory) {
  return memory == Memory::symmetric || memory == Memory::host_shared || memory == Memory::host_reduced;
}

enum class Access { read, write, accumulate, consume };

/// What memory is used for: the rows of `explain memory`.
enum class Cause { weights, optimizer, gradients, unsharded, slots, saved, work, messages, save_copy, cache };
constexpr int kNumCauses = 10;

/// Activations and their gradients are sent in separate queues (lanes), so that neither waits behind the other.
enum Lane : int { kActivations = 0, kGradients = 1 };
/// Likewise what goes to and from host memory, and to and from a disk.
enum TierLane : int { kHostLane = 0, kDiskLane = 1 };

struct Queue {
  QueueKind kind = QueueKind::compute;
  int peer = -1;  ///< send, receive: index of the other pipeline rank
  int lane = 0;  ///< send, receive: Lane; fetch, evict: TierLane
  auto operator<=>(const Queue&) const = default;
};

struct Value {
  ValueKind kind;
  int owner = -1;  ///< unit or group, depending on the kind; -1: the step
  int micro_batch = -1;  ///< -1 for persistent values
  int instance = 0;  ///< parameters: which unshard; saved, deferred, work: tensor_instance(); state: which tile
  std::string label;  ///< "saved(block 3, mb 0).qkv"
  int64_t bytes = 0;
  Memory memory = Memory::own;
  Cause cause = Cause::work;
  bool persistent = false;
  bool held = false;  ///< keeps its contents from one run of its list to the next, until another list runs
  int takes_over = -1;  ///< value whose bytes this one reuses
  int home = -1;  ///< value in a tier of which this is the copy that actions use
  int64_t alignment = 64;  ///< of its offset, bytes

  // Set by place():
  int first = -1;  ///< index of the first action that uses it
  int last = -1;  ///< index of the last action during which it must stay
  int64_t offset = -1;  ///< in its memory region, bytes
};

/// Value::instance of a tensor in `saved`, `deferred` or `work` encodes the pass that made it and its index.
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
  int owner = -1;  ///< unit (computation, messages), group (parameters, gradients, step) or value (fetch, evict)
  int micro_batch = -1;
  int part = 0;  ///< of a group's step: which tile of the state it updates (GroupDeclaration::step_tile)
  Queue queue = {};
  int completes_at = -1;  ///< index of the action that waits for it; -1: synchronous
  bool accumulate = false;  ///< gradients: adds to those of the step's earlier micro-batches
  comm::PerUnitAxis<bool> meets = {};  ///< computation and step: whether it communicates on the axis
  int64_t bytes = 0;  ///< gathered, reduced, sent or moved
  double cost = 0;  ///< of computation, in any unit of time (Rates::compute_scale)
  int cell = -1;  ///< pipeline cell it belongs to
  std::vector<Use> uses;
};

struct Schedule {
  std::string name;  ///< ListTraits::name
  bool has_loss = true;  ///< ListTraits::has_loss
  std::vector<std::string> unit_names;  ///< of the whole model
  std::vector<std::string> group_names;
  std::set<int> frozen_groups;
  std::vector<Value> values;
  std::vector<Action> actions;

  /// -1 when absent; never a copy. Looks at all values: who asks for many takes a ValueIndex.
  int find(ValueKind kind, int owner, int micro_batch, int instance = 0) const;
  /// The value itself, or of a copy its home.
  int original(int value) const { return values[value].home >= 0 ? values[value].home : value; }
};

/// Finds values as Schedule::find does, without looking at all of them. Values that the list gets later are added.
class ValueIndex {
 public:
  ValueIndex() = default;
  explicit ValueIndex(const Schedule& schedule);
  void add(const Value& value, int index);
  int find(ValueKind kind, int owner, int micro_batch, int instance = 0) const;

 private:
  std::map<std::tuple<ValueKind, int, int, int>, int> places_;
};

/// The lists of a plan. Only one runs at a time, so one arena holds the values of all: persistent values have the same
/// place in each list, and the other values of the lists share the rest. `generate` computes logits after new tokens of
/// many texts. A list that a plan does not need has no actions.
enum class List { train, evaluate, generate };

struct ListTraits {
  List list;
  const char* name;
  bool trains;  ///< has backward passes and an optimizer
  bool has_loss;  ///< reads targets
};

constexpr ListTraits kLists[] = {
    {List::train, "train", true, true},
    {List::evaluate, "evaluate", false, true},
    {List::generate, "generate", false, false},
};

constexpr const ListTraits& traits_of(List list) { return kLists[static_cast<int>(list)]; }

template <typename T>
using PerList = base::EnumArray<List, std::size(kLists), T>;

/// "Backward(block 3, mb 0)"
std::string describe(const Schedule& schedule, const Action& action);
std::string name_of(const Queue& queue);
const char* name_of(Cause cause);
/// A placed list for people (`trireme explain schedule`). Each action has a line: its number, its queue, what it reads
/// and writes, and the MiB alive.
std::string render_text(const Schedule& schedule);

}  // namespace trireme::schedule
