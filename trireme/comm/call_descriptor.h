// The fixed-size record of a call that ranks publish before any data moves, so that each can compare every
// other rank's call with its own: operation, dtypes, sizes, root, options, and where in shared memory the
// tensors lie. Calls that differ are an error naming both, on all ranks, instead of a hang or wrong bytes.
#pragma once

#include "trireme/comm/collective.h"

namespace trireme::comm {

/// A place in memory that all ranks of the group can reach; region -1 means private memory.
struct SharedPlace {
  int32_t region = -1;
  int64_t offset = 0;  ///< in bytes
};

/// In memory and on the wire it is followed by counts[size] and input_counts[size].
struct CallDescriptor {
  uint64_t sequence;  ///< number of the call in its group, from 0
  int64_t input_elements, output_elements, extent;
  SharedPlace input_place, output_place;
  int32_t root;
  Operation operation;
  int8_t input_dtype, output_dtype;
  ReduceOp op;
  bool accumulate;
  bool has_counts, has_input_counts;
};

/// A descriptor with its counts, lying in memory that someone else owns.
struct CallView {
  const CallDescriptor* fixed;
  std::span<const int64_t> counts, input_counts;
};

constexpr int64_t descriptor_bytes(int size) {
  return static_cast<int64_t>(sizeof(CallDescriptor)) + 2 * size * static_cast<int64_t>(sizeof(int64_t));
}

void write_descriptor(void* to, const Collective& call, uint64_t sequence, SharedPlace input, SharedPlace output,
                      int size);
CallView read_descriptor(const void* from, int size);

/// "reduce_scatter(input float32[1024], output float32[512], counts [512, 512], sum)"
std::string describe(const CallView& call);

/// Empty when the calls of two ranks belong together; otherwise what differs, in a few words.
std::string difference(const CallView& mine, int my_rank, const CallView& theirs, int their_rank);

}  // namespace trireme::comm
