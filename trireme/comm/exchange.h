// A collective as tables: the slice of its input that a rank gives to each rank, and the place of each received slice
// in the output or in the fold. Every operation is one such phase. Only a large all_reduce has two: a reduce_scatter
// and an all_gather in place. So a backend only has to run phases.
#pragma once

#include "trireme/comm/call_descriptor.h"

namespace trireme::comm {

struct Exchange {
  struct Give {
    int64_t begin = 0, count = 0;  ///< elements of my input
  };
  struct Take {
    int64_t source_begin = 0;  ///< first element, in the giver's input (or output, see `source`)
    int64_t count = 0;
    int64_t begin = 0;  ///< in my output
  };
  enum class Source { input, output };

  at::Tensor output, input;  ///< undefined on a rank that takes, or gives, nothing
  bool fold = false;  ///< slices are folded in rank order; false: they are copied
  bool spread = false;  ///< a giver gives the same slice to all takers
  bool stage = false;  ///< peers need a copy of the input, because the output overwrites it
  int only_giver = -1;  ///< the one rank that gives, -1 when all do
  bool gathers_all = false;  ///< every rank ends with the same whole output, so one shared copy is enough
  Source source = Source::input;  ///< the call's tensor that holds the givers' slices
  ReduceOptions options;
  int64_t max_count = 0;  ///< largest slice between any two ranks; equal on all ranks
  std::vector<Give> give;  ///< by taking rank
  std::vector<Take> take;  ///< by giving rank
};

/// Phases of `call` on this rank; none for a barrier. `calls` are the calls of all ranks; only all_to_all reads them.
/// In an all_reduce of up to `whole_bytes`, or one that accumulates, every rank folds whole vectors. In a larger one
/// each rank folds a slice, and the slices are gathered (same bits). -1: always slices, as one shared output requires.
std::vector<Exchange> plan_exchanges(const Collective& call, int rank, int size, std::span<const CallView> calls,
                                     int64_t whole_bytes);

/// An all_reduce as one phase, for ranks that can write to each other's outputs: this rank folds its slice of all
/// inputs and writes the result to every rank's output at take[0].begin. The bits are the same.
Exchange plan_slice_for_all(const Collective& call, int rank, int size);

/// Copies or folds this rank's own slice, the part of a phase that needs no peer.
void exchange_with_self(const Exchange& phase, int rank);

}  // namespace trireme::comm
