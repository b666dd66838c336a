// The fixed-size record of a call: operation, dtypes, sizes, root, options, the schedule's action that makes it, and
// where in shared memory its tensors are. Each rank publishes it before any data moves, so all ranks can compare their
// calls. Calls that do not match give an error on all ranks that names both calls, instead of a hang or wrong bytes.
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

/// In memory and on the wire, counts[size] and input_counts[size] follow it. If the calls match, ranks read the first
/// cache line only. In shared memory `number` is stored last: once it is there, the rest is complete.
struct CallDescriptor {
  uint64_t number;  ///< of the call in its group, from 1
  uint64_t fingerprint;  ///< hash of extent, counts and action
  int64_t input_elements, output_elements;
  int64_t input_offset, output_offset;  ///< SharedPlace::offset of each tensor
  int32_t input_region, output_region;
  int32_t root;
  Operation operation;
  int8_t input_dtype, output_dtype;
  ReduceOp op : 1;
  bool accumulate : 1, has_counts : 1, has_input_counts : 1;
  int64_t extent;  ///< Collective::extent
  char action[56];  ///< text of the ActionLabel, cut to fit; the fingerprint covers the whole text

  SharedPlace input_place() const { return {input_region, input_offset}; }
  SharedPlace output_place() const { return {output_region, output_offset}; }
};
static_assert(offsetof(CallDescriptor, extent) == 64);

/// A descriptor with its counts, in memory that someone else owns.
struct CallView {
  const CallDescriptor* fixed;
  std::span<const int64_t> counts, input_counts;  ///< needed only if fingerprints differ, and in all_to_all
};

constexpr int64_t descriptor_bytes(int size) {
  return static_cast<int64_t>(sizeof(CallDescriptor)) + 2 * size * static_cast<int64_t>(sizeof(int64_t));
}

struct Call;  // checked_communicator.h

/// `sequence` is the call's own. It is 0 if the number does not matter to the caller.
void write_descriptor(void* to, const Call& call, uint64_t sequence, SharedPlace input, SharedPlace output, int size);
CallView read_descriptor(const void* from, int size);

/// "reduce_scatter(input float32[1024], output float32[512], counts [512, 512], sum)"
std::string describe(const CallView& call);

/// Empty if the calls of two ranks match; otherwise what differs, in a few words.
std::string difference(const CallView& mine, int my_rank, const CallView& theirs, int their_rank);

/// The rank whose call does not match, and the sentence for the error.
struct Mismatch {
  int rank;
  std::string text;  ///< "different sizes: expected all_reduce(...) as ranks 0, 1, 3 call it, found ... on rank 2"
};

/// Compares the calls of all ranks of `group`, in rank order. A call without a descriptor (`fixed` null) is unknown and
/// is skipped. The majority's call is the expected one. Without a majority the text names two ranks and blames neither.
std::optional<Mismatch> find_mismatch(const Group& group, std::span<const CallView> calls);

}  // namespace trireme::comm
