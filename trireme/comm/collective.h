// One call of a communicator as data: the operation, its tensors, counts and options. All backends share this record
// and the checks before any communication. So a wrong call gives the same message on every backend.
#pragma once

#include "trireme/comm/communicator.h"

#include <string_view>

namespace trireme::comm {

enum class Operation : uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  send,
  receive,
  barrier,
  allocate_shared,
};

std::string_view to_string(Operation operation);

/// Point-to-point calls. They are numbered, and run, separately from collectives.
inline bool is_message(Operation operation) { return operation == Operation::send || operation == Operation::receive; }

/// Name of a dtype as in settings and files: "float32", "bfloat16", ...
std::string_view dtype_name(at::ScalarType dtype);

struct Collective {
  Operation operation = Operation::barrier;
  at::Tensor output;                    ///< undefined where the operation has none on this rank
  at::Tensor input;                     ///< broadcast: the same tensor as `output`
  std::vector<int64_t> counts;          ///< elements per rank; in all_to_all those of the output
  std::vector<int64_t> input_counts;    ///< all_to_all only
  int root = -1;                        ///< or the peer of send and receive
  ReduceOptions options;
  int64_t extent = 0;                   ///< allocate_shared: requested bytes
};

/// Checks dtypes, sizes, devices and ranks of `call`, as far as one rank can.
/// Errors    ShapeError or UsageError, before any communication
void check_call(const Collective& call, const Communicator& communicator, at::DeviceType device);

}  // namespace trireme::comm
