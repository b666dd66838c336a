// One table of all kinds of action: name, owner, queue, and how the kind is drawn. Only the validator has a table of
// its own (validate_targets.cpp), so that it finds a wrong row here.
#pragma once

#include <string_view>

#include "trireme/base/meter.h"

namespace trireme::schedule {

enum class ActionKind {
  load_batch,  ///< tokens and targets of a micro-batch
  unshard,     ///< all-gather of a group's parameters
  forward,
  recompute,        ///< forward again, for what backward needs
  backward,
  backward_input,   ///< half of backward: the gradient that the stage before waits for
  backward_weight,  ///< half of backward: gradients of parameters, for which only the optimizer waits
  send,             ///< a boundary (or its gradient) to the next (previous) pipeline stage
  receive,
  fetch,  ///< makes a copy of a value whose home is host memory or a disk
  evict,  ///< writes such a copy back to its home
  reduce_gradient,      ///< reduce-scatter: the gradients of a group into the shards of their owners
  all_reduce_gradient,  ///< all-reduce: the gradients of a group into every rank's copy
  gather_replicas,      ///< all-gather: the parts of the shard's gradient, of which each replica has reduced one
  reduce_replicas,      ///< all-reduce: the shard's gradient over replicas
  reduce_tied,          ///< all-reduce: the gradient of tied weights over the pipeline stages that hold them
  gather_loss,          ///< all-gather of the ranks' loss sums
  sum_squares,          ///< of a group whose gradient leaves this memory before the norm is gathered
  gather_norm,          ///< all-gather of the ranks' partial sums of squares
  clip,                 ///< computes the gradient's norm and the clipping factor
  step,                 ///< optimizer update of a group's shard
};

/// First-in first-out queues: one for computation, one for each process group, one for each peer, direction and lane,
/// and one for each direction to and from host memory and disk.
enum class QueueKind { compute, gather, reduce, replicas, tied, loss, norm, send, receive, fetch, evict };

/// What Action::owner is the index of.
enum class Owner { step, unit, group, value };

/// What an action is drawn as.
enum class Paint {
  forward,
  backward,
  input,
  weight,
  recompute,
  optimizer,  ///< clip and step
  load,       ///< load_batch
  // Lanes of communication:
  gather,
  reduce,  ///< over shards, replicas and tied stages
  send,
  receive,
  norm,  ///< losses and the norm
  fetch,
  evict,
};

struct ActionTraits {
  ActionKind kind;
  const char* name;  ///< "ReduceGradient"
  Owner owner;
  QueueKind queue;
  Paint paint;
  base::Activity activity;       ///< what its time counts as; products, attention and waits count separately
  bool writes_gradient = false;  ///< of a unit's parameters

  bool computes() const { return owner == Owner::unit && queue == QueueKind::compute; }
  bool is_message() const { return queue == QueueKind::send || queue == QueueKind::receive; }
};

const ActionTraits& traits_of(ActionKind kind);

inline const char* name_of(ActionKind kind) { return traits_of(kind).name; }
inline bool is_computation(ActionKind kind) { return traits_of(kind).computes(); }  ///< of a unit
inline bool is_message(ActionKind kind) { return traits_of(kind).is_message(); }  ///< between pipeline stages
/// Between a rank's own memory and a value's home elsewhere.
inline bool is_transfer(ActionKind kind) { return kind == ActionKind::fetch || kind == ActionKind::evict; }
inline bool is_transfer(QueueKind kind) { return kind == QueueKind::fetch || kind == QueueKind::evict; }
inline bool writes_gradient(ActionKind kind) { return traits_of(kind).writes_gradient; }

std::string_view name_of(QueueKind kind);

}  // namespace trireme::schedule
