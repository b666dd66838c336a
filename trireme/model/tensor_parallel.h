// TensorParallel: a unit's communication with the ranks that hold the other parts of its matrices. Column products read
// all rows; row products give partial sums. From a row product to the next column product, each rank keeps 1/tp of the
// rows under sequence parallelism. On one rank the functions do nothing. TensorTraffic lists TensorParallel's calls.
// Source: Shoeybi et al., Megatron-LM (2019); Korthikanti et al., Reducing Activation Recomputation (2022)
#pragma once

#include "trireme/model/unit.h"

namespace trireme::model {

class TensorParallel {
 public:
  TensorParallel(const Parallel& parallel, const comm::UnitCommunicators& ranks);

  bool alone() const { return ranks_ == nullptr; }
  bool sequence() const { return !alone() && parallel_.sequence_parallel; }

  /// This rank's rows of `whole` [T, ...]: all of them without sequence parallelism.
  at::Tensor own_rows(const at::Tensor& whole) const;
  /// Sequence parallel: fills `whole` with the rows of all ranks. own_rows(whole) already holds this rank's.
  void gather_in_place(const at::Tensor& whole) const;
  /// Sequence parallel: gathers `rows` into `whole` and returns it; otherwise returns `rows`.
  at::Tensor gather(const at::Tensor& whole, const at::Tensor& rows) const;
  /// Sums `partial` over the ranks. Under sequence parallelism, `rows` gets this rank's rows of the sum and is
  /// returned. Otherwise the sum is in `partial`, which is returned, and `rows` may be undefined.
  at::Tensor reduce(const at::Tensor& partial, const at::Tensor& rows) const;
  /// x becomes the sum over the ranks.
  void sum(const at::Tensor& x) const;
  void max(const at::Tensor& x) const;

 private:
  Parallel parallel_;
  comm::Communicator* ranks_;
};

/// Appends the same calls to a list of TrafficRow, for UnitTraffic.
class TensorTraffic {
 public:
  explicit TensorTraffic(const Parallel& parallel) : parallel_(parallel) {}

  void gather(std::vector<TrafficRow>& rows, at::ScalarType dtype, int64_t elements) const;
  void reduce(std::vector<TrafficRow>& rows, at::ScalarType dtype, int64_t elements) const;
  void sum(std::vector<TrafficRow>& rows, at::ScalarType dtype, int64_t elements) const;
  void max(std::vector<TrafficRow>& rows, at::ScalarType dtype, int64_t elements) const;

 private:
  Parallel parallel_;
};

}  // namespace trireme::model
