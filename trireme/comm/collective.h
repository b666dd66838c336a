// One call of a communicator as data: what is asked for, with which tensors, counts and options. All backends
// share this record, the checks that are made before any communication, and its description in messages, so
// that a wrong call reads the same everywhere.
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

/// From one rank to another: calls that are numbered and run apart from those of the whole group.
inline bool is_message(Operation operation) { return operation == Operation::send || operation == Operation::receive; }

/// Name of a dtype as settings and files write it: "float32", "bfloat16", ...
std::string_view dtype_name(at::ScalarType dtype);

struct Collective {
  Operation operation = Operation::barrier;
  at::Tensor output;                    ///< undefined where the operation has none on this rank
  at::Tensor input;                     ///< broadcast: the same tensor as `output`
  std::vector<int64_t> counts;          ///< elements per rank; of the output in all_to_all
  std::vector<int64_t> input_counts;    ///< all_to_all only
  int root = -1;                        ///< or the peer of send and receive
  ReduceOptions options;
  int64_t extent = 0;                   ///< allocate_shared: bytes asked for
};

/// Checks dtypes, sizes, devices and ranks of `call` as far as one rank can see them.
/// Errors    ShapeError or UsageError, before any communication
void check_call(const Collective& call, const Communicator& communicator, at::DeviceType device);

/// True when sums and maxima of `input` into `output` are defined: equal dtypes, or bf16/fp16 into fp32.
bool can_fold(at::ScalarType input, at::ScalarType output);

}  // namespace trireme::comm
