// The fixed-size record of a call that ranks publish before any data moves, so that each can compare every
// other rank's call with its own: operation, dtypes, sizes, root, options, the action that it is made for, and where in
// shared memory the tensors lie. Calls that differ are an error naming both, on all ranks, instead of a hang or wrong
// bytes.
#pragma once

#include <cstddef>
#include <optional>

#include "trireme/comm/collective.h"
#include "trireme/comm/group.h"

namespace trireme::comm {

/// A place in memory that all ranks of the group can reach; region -1 means private memory.
struct SharedPlace {
  int32_t region = -1;
  int64_t offset = 0;  ///< in bytes
};

/// In memory and on the wire it is followed by counts[size] and input_counts[size]. What ranks look at when their calls
/// match is in the first cache line, its number first: in shared memory that is stored last and says that all is there.
struct CallDescriptor {
  uint64_t number;  ///< of the call in its group, from 1
  uint64_t fingerprint;  ///< of extent, counts and action
  int64_t input_elements, output_elements;
  int64_t input_offset, output_offset;  ///< of the places
  int32_t input_region, output_region;
  int32_t root;
  Operation operation;
  int8_t input_dtype, output_dtype;
  ReduceOp op : 1;
  bool accumulate : 1, has_counts : 1, has_input_counts : 1;
  int64_t extent;
  char action[56];  ///< text of the ActionLabel, cut to fit; the fingerprint has all of it

  SharedPlace input_place() const { return {input_region, input_offset}; }
  SharedPlace output_place() const { return {output_region, output_offset}; }
};
static_assert(offsetof(CallDescriptor, extent) == 64);

/// A descriptor with its counts, lying in memory that someone else owns.
struct CallView {
  const CallDescriptor* fixed;
  std::span<const int64_t> counts, input_counts;  ///< only to be looked at where fingerprints differ, or in all_to_all
};

constexpr int64_t descriptor_bytes(int size) {
  return static_cast<int64_t>(sizeof(CallDescriptor)) + 2 * size * static_cast<int64_t>(sizeof(int64_t));
}

struct Call;  // checked_communicator.h

/// `sequence` is the call's own, but for those who keep descriptors to compare with later calls.
void write_descriptor(void* to, const Call& call, uint64_t sequence, SharedPlace input, SharedPlace output, int size);
CallView read_descriptor(const void* from, int size);

/// "reduce_scatter(input float32[1024], output float32[512], counts [512, 512], sum)"
std::string describe(const CallView& call);

/// Empty when the calls of two ranks belong together; otherwise what differs, in a few words.
std::string difference(const CallView& mine, int my_rank, const CallView& theirs, int their_rank);

/// Calls of a group's ranks that do not belong together: whose is the odd one, and all of it in a sentence.
struct Mismatch {
  int rank;
  std::string text;  ///< "different sizes: expected all_reduce(...) as ranks 0, 1, 3 call it, found ... on rank 2"
};

/// Compares the calls of all ranks of `group`, by rank; those without a descriptor (fixed null) are not known. What
/// most ranks call is what was expected; of two, neither is the odd one, and both are named.
std::optional<Mismatch> find_mismatch(const Group& group, std::span<const CallView> calls);

}  // namespace trireme::comm
