// The phases of a call on a segment, without its tensors, so that the next call of the same kind takes them as they
// are: a training step makes the same calls again and again.
#pragma once

#include "trireme/comm/exchange.h"

namespace trireme::comm {

/// Where the outputs of a call lie: in memory of each rank's own, where every rank can write to all of them, or
/// they are one and the same memory.
enum class OutputMemory : uint8_t { own, reachable, one };

struct PlannedPhase {
  Exchange tables;             ///< without tensors
  at::ScalarType input_dtype = at::ScalarType::Undefined, output_dtype = at::ScalarType::Undefined;
  bool reads_output = false;   ///< its input is part of the call's output
  int64_t input_begin = 0, output_begin = 0;  ///< in bytes, in the call's tensors
  bool pushes = false;         ///< the fold is written to every rank's output
};

class PlanCache {
 public:
  /// Plans `call`, or finds the plan of one that differs in its tensors only. Valid until the next call.
  ///
  /// Cost      no allocation for a call of a kind that was seen among the last kLimit kinds, all_to_all excepted
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
  size_t next_ = 0;  // where the search begins: steps repeat their calls in order
  size_t oldest_ = 0;
};

}  // namespace trireme::comm
