// The phases of a collective over a shared-memory segment, without its tensors. Every training step makes the same
// calls, so later calls of the same kind reuse these phases.
#pragma once

#include "trireme/comm/exchange.h"

namespace trireme::comm {

/// Where the ranks' outputs of a call are. own: in each rank's private memory. reachable: in shared memory, so every
/// rank can write to all of them. one: all ranks share one output in shared memory.
enum class OutputMemory : uint8_t { own, reachable, one };

struct PlannedPhase {
  Exchange tables;  ///< without tensors
  at::ScalarType input_dtype = at::ScalarType::Undefined, output_dtype = at::ScalarType::Undefined;
  bool reads_output = false;  ///< its input is part of the call's output
  int64_t input_begin = 0, output_begin = 0;  ///< in bytes, in the call's tensors
  bool pushes = false;  ///< the result is written to every rank's output
};

class PlanCache {
 public:
  /// Plans `call`, or finds the plan of an earlier call that differs only in its tensors. The result is valid until
  /// find_or_plan is called again. Nothing is allocated if the kind of `call` is among the last kLimit kinds, except
  /// for all_to_all.
  const std::vector<PlannedPhase>& find_or_plan(const Collective& call, int rank, std::span<const CallView> calls,
                                                OutputMemory outputs);

 private:
  static constexpr size_t kLimit = 64;

  struct Entry {
    Collective kind;  ///< without tensors
    at::ScalarType input_dtype, output_dtype;
    int64_t input_elements, output_elements;
    bool in_place;
    OutputMemory outputs;
    std::vector<PlannedPhase> phases;
  };
  static bool same_kind(const Entry& entry, const Collective& call, OutputMemory outputs);

  std::vector<Entry> entries_;
  size_t next_ = 0;  // the search begins here, because steps repeat their calls in order
  size_t oldest_ = 0;
};

}  // namespace trireme::comm
