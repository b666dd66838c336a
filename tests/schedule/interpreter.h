// Runs the placed lists of all ranks on symbols, and knows nothing of the validator's rules. Memory is bytes with
// the hash of what lies there; an action reads the hashes of its inputs from their bytes and writes a hash of them
// to its outputs, so whatever shares bytes with something alive, comes too early or goes to the wrong place leaves
// other hashes behind. Two schedules are equal when the persistent values of all ranks are.
//
// An action that goes on beside others is taken at its worst: its outputs hold garbage from its start to the last
// moment at which it may complete, and its inputs must be the same at both.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/schedule/queue_model.h"

namespace trireme::schedule {

/// Bytes of a region as pieces with one content each.
class SymbolicBytes {
 public:
  void write(int64_t offset, int64_t size, uint64_t content);
  /// The content as it was written, when nothing has touched these bytes since; another hash otherwise.
  uint64_t read(int64_t offset, int64_t size) const;

 private:
  struct Piece {
    int64_t end;
    uint64_t content;
    int64_t origin;  // where the content's own first byte would lie
    int64_t size;    // of the whole content
  };
  std::map<int64_t, Piece> pieces_;
};

struct Outcome {
  std::string trouble;                          ///< what cannot happen in a right schedule; empty: nothing
  std::vector<std::vector<uint64_t>> results;   ///< by rank: persistent values, in the order of the table
  bool operator==(const Outcome&) const = default;
};

/// Deterministic. Cost O(uses x log pieces).
Outcome interpret(const std::vector<RankProgram>& programs);

}  // namespace trireme::schedule
