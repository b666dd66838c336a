// TensorParallel: what a unit says to the ranks that hold the other parts of its matrices. Column products take the
// whole rows, row products leave partial sums; between them sequence parallelism keeps 1/tp of the rows.
// Each function does nothing on one rank. The `traffic` half declares the calls of the other half.
// Source: Shoeybi et al., Megatron-LM (2019); Korthikanti et al., Reducing Activation Recomputation (2022)
#pragma once

#include "trireme/model/unit.h"

namespace trireme::model {

class TensorParallel {
 public:
  TensorParallel(const Parallel& parallel, comm::Communicator* ranks);

  bool alone() const { return ranks_ == nullptr; }
  bool sequence() const { return !alone() && parallel_.sequence_parallel; }

  /// This rank's rows of `whole` [T, ...]: all of them without sequence parallelism.
  at::Tensor own_rows(const at::Tensor& whole) const;
  /// Sequence parallel: fills `whole` with the rows of all ranks, of which own_rows(whole) are already there.
  void gather_in_place(const at::Tensor& whole) const;
  /// Sequence parallel: gathers `rows` into `whole` and returns it; otherwise returns `rows`.
  at::Tensor gather(const at::Tensor& whole, const at::Tensor& rows) const;
  /// Sums `partial` over the ranks. Returns what holds this rank's rows of the sum: `rows` under sequence parallelism,
  /// otherwise `partial` (then `rows` may be undefined or the same tensor).
  at::Tensor reduce(const at::Tensor& partial, const at::Tensor& rows) const;
  /// x becomes the sum over the ranks.
  void sum(const at::Tensor& x) const;
  void max(const at::Tensor& x) const;

 private:
  Parallel parallel_;
  comm::Communicator* ranks_;
};

/// The same calls as rows, appended to a list.
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
