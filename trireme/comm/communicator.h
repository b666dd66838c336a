// Communicator: the collectives of one group of ranks, on flat contiguous tensors.
//
// Every collective is asynchronous: the call *starts* it and returns a Work. The calls of one communicator complete in
// order. The backends are shm, threads, gloo, mpi, dry_run and nccl; a group of one rank is legal and costs nothing.
// There is no average: the loss is scaled instead. Two choices differ from c10d. Sums are a left fold over the ranks in
// rank order, in the dtype of the *output* (a bf16 input may be summed into an fp32 output). And a sum may be added to
// the output's old contents. So the bits of a sum do not depend on the backend, and a gradient accumulates over
// micro-batches without losing bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme::comm {

enum class ReduceOp : uint8_t { sum, max };
enum class Operation : uint8_t;  // collective.h

/// Traffic of a communicator: the number of calls, and the bytes that this rank sends (for receive: receives). The
/// bytes are those of the textbook algorithm, whatever the backend really moves. all_gather and reduce_scatter count n
/// minus the rank's own part, all_reduce 2 n (N-1)/N, all_to_all the others' parts, and a message its size. N is the
/// number of ranks. n is the whole tensor in bytes of its dtype (of bf16 with GroupOptions::bf16_sums).
struct TrafficCount {
  int64_t calls = 0, bytes = 0;
};

/// A call in progress. The destructor of an unfinished Work does not wait; the communicator finishes the call.
class Work {
 public:
  virtual ~Work() = default;

  /// Makes progress without blocking. True when the result is complete on this rank and the inputs may be reused (with
  /// shared memory: when no peer reads them any more).
  /// Errors    CommError as wait()
  virtual bool poll() = 0;

  /// Returns when poll() would be true. For tensors on a GPU it returns earlier: as soon as later work on the caller's
  /// current stream is ordered after the collective (device_communicator.h).
  /// Errors    CommError on timeout, peer loss or mismatched calls; the group is unusable afterwards
  virtual void wait() = 0;
};

using WorkPtr = std::shared_ptr<Work>;

/// Options of a reduction.
struct ReduceOptions {
  ReduceOp op = ReduceOp::sum;
  bool accumulate = false;  ///< add to the old contents of `output` (sum only)
};

/// Memory that the ranks of a group can access, from Communicator::allocate_shared.
struct SharedBuffer {
  void* mine = nullptr;  ///< this rank's part
  std::vector<void*> parts;  ///< every rank's part, as mapped here; just {mine} if peers' memory is out of reach
  bool host_shared = false;  ///< true: `mine` is the same memory for all ranks of the group
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  int rank() const { return rank_; }  ///< this process's rank in the group
  int size() const { return size_; }
  const std::string& name() const { return name_; }  ///< the group: "shard", "world", ...
  virtual std::string backend() const = 0;  ///< "shm", "threads", "gloo", "mpi", "dry_run", "nccl"

  /// Collective. Gives every rank `bytes` zeroed bytes (4096-aligned) for as long as the communicator lives.
  /// symmetric: one part per rank, readable by peers. host_shared: one part for all ranks. Backends whose ranks share
  /// no memory return private memory for both (`host_shared` false). A reduction whose input is in symmetric memory,
  /// and a gather whose output is in host_shared memory, need no staging copies if all ranks pass the same offset.
  /// Errors    CommError with the numbers if there is too little memory
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
  /// Messages from one rank to another arrive in the order in which they were sent.
  virtual WorkPtr send(at::Tensor tensor, int peer) = 0;
  virtual WorkPtr receive(at::Tensor tensor, int peer) = 0;
  virtual WorkPtr barrier() = 0;

  virtual TrafficCount traffic(Operation operation) const = 0;

  /// Seconds that this communicator's own threads have spent on calls.
  virtual double background_seconds() const { return 0; }

  /// Lets pending works advance: shared-memory backends have no thread of their own. The engine calls it between
  /// actions. It never blocks.
  virtual void progress() {}

  /// Whether waits end only if a peer is lost, and not after the group's timeout. Use Patience.
  virtual void be_patient(bool patient) { (void)patient; }

  /// Names communicators of the same thread that must make progress while this one waits. A message larger than a
  /// mailbox needs progress at both ends, whatever else these ranks wait for. Backends with threads ignore it.
  virtual void drive_while_waiting(const std::vector<std::shared_ptr<Communicator>>& others) { (void)others; }

 protected:
  Communicator(int rank, int size, std::string name) : rank_(rank), size_(size), name_(std::move(name)) {}

 private:
  int rank_;
  int size_;
  std::string name_;
};

using CommunicatorPtr = std::shared_ptr<Communicator>;

/// While it lives, this rank waits for the others of a group as long as they need: they do work of their own, such as
/// writing a text, and nobody can say how long it takes. A lost peer still ends the wait.
class Patience {
 public:
  explicit Patience(Communicator& group) : group_(group) { group_.be_patient(true); }
  Patience(const Patience&) = delete;
  ~Patience() { group_.be_patient(false); }

 private:
  Communicator& group_;
};

}  // namespace trireme::comm
