// Communicator: the collectives of one group of ranks, on flat contiguous tensors.
//
// Every collective is asynchronous: the call *starts* it and returns a Work; calls of one communicator
// complete in the order of the calls. Backends are same-shaped siblings (shm, threads, gloo, mpi,
// dry_run, nccl); a group of one rank is legal and costs nothing. There is no average: means are folded into the
// loss. Two choices set it apart from c10d: sums are a left fold over the ranks in rank order, in the dtype
// of the *output* (a bf16 input may be summed into an fp32 output), and may go on top of what the output
// holds. So the bits of a sum do not depend on the backend, and a gradient accumulates over micro-batches
// without losing bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme::comm {

enum class ReduceOp : uint8_t { sum, max };
enum class Operation : uint8_t;  // collective.h

/// What went through a communicator: calls, and logical bytes that this rank has to send (receive: to receive) by the
/// textbook algorithm, whatever the backend really moves: all_gather and reduce_scatter n - own part, all_reduce
/// 2 n (N-1)/N, all_to_all the others' parts, a message its size; n is the whole, in bytes of its own dtype (of bf16
/// for the terms of a sum that travel so, see GroupOptions::bf16_sums).
struct TrafficCount {
  int64_t calls = 0, bytes = 0;
};

/// A collective under way. Destroying an unfinished Work waits for nothing; the communicator finishes it.
class Work {
 public:
  virtual ~Work() = default;

  /// Makes progress without blocking; true when the result is complete on this rank and its inputs may be
  /// reused (for shared memory: no peer still reads them).
  /// Errors    CommError as wait()
  virtual bool poll() = 0;

  /// Returns when poll() would be true; for tensors on a GPU, when what comes next on the caller's current stream comes
  /// after that (device_communicator.h).
  /// Errors    CommError on timeout, peer loss or mismatched calls; the group is unusable afterwards
  virtual void wait() = 0;
};

using WorkPtr = std::shared_ptr<Work>;

/// Options of a reduction.
struct ReduceOptions {
  ReduceOp op = ReduceOp::sum;
  bool accumulate = false;  ///< fold on top of what `output` holds (sum only)
};

/// Bytes that the ranks of one group can reach, as set up by Communicator::allocate_shared.
struct SharedBuffer {
  void* mine = nullptr;  ///< this rank's part
  std::vector<void*> parts;  ///< part of every group rank, as mapped here; just {mine} where peers cannot be read
  bool host_shared = false;  ///< true: `mine` is the same memory for all ranks of the group
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  int rank() const { return rank_; }  ///< this process's rank in the group
  int size() const { return size_; }
  const std::string& name() const { return name_; }  ///< the group: "shard", "world", ...
  virtual std::string backend() const = 0;  ///< "shm", "threads", "gloo", "mpi", "dry_run", "nccl"

  /// Gives every rank of the group `bytes` zeroed bytes (4096-aligned), collectively, for as long as the
  /// communicator lives. symmetric: one part per rank, readable by peers. host_shared: one part for all the
  /// ranks. Backends whose ranks share no memory return private memory for both (`host_shared` false).
  /// A reduction whose input lies in symmetric memory and a gather whose output lies in host_shared memory
  /// run without staging copies, when all ranks pass the same offset.
  /// Errors    CommError when memory cannot be had (the numbers are in the message)
  virtual SharedBuffer allocate_shared(int64_t bytes, bool host_shared) = 0;

  /// Concatenates the ranks' `input` [counts[rank]] into `output` [sum(counts)] on every rank.
  /// `input` may be the rank's own slice of `output`. counts may be uneven and hold zeros.
  virtual WorkPtr all_gather(at::Tensor output, at::Tensor input, std::span<const int64_t> counts) = 0;

  /// output [counts[rank]] = fold over ranks k = 0.. of that slice of rank k's `input` [sum(counts)].
  /// dtypes: input == output, or input bf16/fp16 with output fp32. Cost: reads size() slices.
  /// Numerics  left fold in rank order in output's dtype; same bits on every backend
  virtual WorkPtr reduce_scatter(at::Tensor output, at::Tensor input, std::span<const int64_t> counts,
                                 ReduceOptions options) = 0;

  /// output [n] = fold over ranks of `input` [n], on every rank; output may be input when dtypes are equal.
  virtual WorkPtr all_reduce(at::Tensor output, at::Tensor input, ReduceOptions options) = 0;

  virtual WorkPtr broadcast(at::Tensor tensor, int root) = 0;
  /// `output` is written on `root` only (may be undefined elsewhere).
  virtual WorkPtr reduce(at::Tensor output, at::Tensor input, int root, ReduceOptions options) = 0;
  /// `output` [sum(counts)] is written on `root` only.
  virtual WorkPtr gather(at::Tensor output, at::Tensor input, std::span<const int64_t> counts, int root) = 0;
  /// `input` [sum(counts)] is read on `root` only; output [counts[rank]].
  virtual WorkPtr scatter(at::Tensor output, at::Tensor input, std::span<const int64_t> counts, int root) = 0;
  /// Sends `input` slice k [input_counts[k]] to rank k; output = the slices received, in rank order.
  virtual WorkPtr all_to_all(at::Tensor output, at::Tensor input, std::span<const int64_t> output_counts,
                             std::span<const int64_t> input_counts) = 0;
  /// Messages between two ranks arrive in the order they were sent.
  virtual WorkPtr send(at::Tensor tensor, int peer) = 0;
  virtual WorkPtr receive(at::Tensor tensor, int peer) = 0;
  virtual WorkPtr barrier() = 0;

  virtual TrafficCount traffic(Operation operation) const = 0;

  /// Seconds in which threads of this communicator's own have worked on calls, beside the thread that made them.
  virtual double background_seconds() const { return 0; }

  /// Lets pending works advance (shared memory backends have no thread of their own). Called by the engine
  /// between actions; never blocks.
  virtual void progress() {}

  /// Communicators of the same thread that have to go on while this one waits: a message larger than a mailbox needs
  /// both its ends driven, whatever else they wait for. Backends with threads of their own need none.
  virtual void drive_while_waiting(const std::vector<std::shared_ptr<Communicator>>& others) { (void)others; }

 protected:
  Communicator(int rank, int size, std::string name) : rank_(rank), size_(size), name_(std::move(name)) {}

 private:
  int rank_;
  int size_;
  std::string name_;
};

using CommunicatorPtr = std::shared_ptr<Communicator>;

}  // namespace trireme::comm
