// A collective as tables: which slice of its input a rank gives to each rank, and where each rank's slice goes
// in the output or into the fold. All operations are one such phase (a large all_reduce is two: a reduce_scatter
// and an all_gather in place), so a backend only has to know how to run a phase.
#pragma once

#include "trireme/comm/call_descriptor.h"

namespace trireme::comm {

struct Exchange {
  struct Give {
    int64_t begin = 0, count = 0;  ///< elements of my input
  };
  struct Take {
    int64_t source_begin = 0;  ///< in the giver's tensor, from its `source` place
    int64_t count = 0;
    int64_t begin = 0;  ///< in my output
  };
  enum class Source { input, output };

  at::Tensor output, input;   ///< one of them may be undefined where nothing is given or taken
  bool fold = false;          ///< take = fold in rank order; otherwise copy
  bool spread = false;        ///< a giver's slice is the same for all who take from it
  bool stage = false;         ///< must not be read in place: the output overwrites what peers still read
  int only_giver = -1;        ///< the one rank that gives, -1 when all do
  bool gathers_all = false;   ///< every rank ends with the same whole output: one shared copy will do
  Source source = Source::input;  ///< which tensor of the call the givers' slices lie in
  ReduceOptions options;
  int64_t max_count = 0;      ///< largest slice between any two ranks; equal on all ranks
  std::vector<Give> give;     ///< by taking rank
  std::vector<Take> take;     ///< by giving rank
};

/// Phases of `call` on this rank; none for a barrier. `calls` are the calls of all ranks (only all_to_all
/// reads the others').
/// all_reduce: up to `whole_bytes`, and when accumulating, every rank folds whole vectors; above that slices are
/// folded, then gathered (same bits). `whole_bytes` -1: always slices, as one shared output demands.
std::vector<Exchange> plan_exchanges(const Collective& call, int rank, int size, std::span<const CallView> calls,
                                     int64_t whole_bytes);

/// An all_reduce as one phase: this rank's slice of all inputs, folded, for every rank's output at take[0].begin; for
/// ranks that can write to each other's outputs. Same bits.
Exchange plan_slice_for_all(const Collective& call, int rank, int size);

/// Runs the part of a phase that needs no peer: this rank's own slice, when the group is this rank alone or
/// the others are imaginary.
void exchange_with_self(const Exchange& phase, int rank);

}  // namespace trireme::comm
