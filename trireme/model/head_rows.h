// What the head's own losses read of rows of logits and of the batch; private to head_objective.cpp and
// head_policy.cpp.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "trireme/model/context_attention.h"
#include "trireme/model/unit.h"

namespace trireme::model {

constexpr int64_t kNoTarget = -100;

/// What sum_rows() kept of row `i`, in float64.
class Rows {
 public:
  Rows(const at::Tensor& row_max, const at::Tensor& sum_exp, const at::Tensor& target_logit,
       const at::Tensor& logit_sum = {})
      : row_max_(row_max), sum_exp_(sum_exp), target_logit_(target_logit), logit_sum_(logit_sum) {}
  double log_sum(int64_t i) const { return std::log(at(sum_exp_, i)) + at(row_max_, i); }
  double logp(int64_t i) const { return at(target_logit_, i) - at(row_max_, i) - std::log(at(sum_exp_, i)); }
  double logit_sum(int64_t i) const { return logit_sum_.defined() ? at(logit_sum_, i) : 0; }

 private:
  static double at(const at::Tensor& values, int64_t i) {
    return values.scalar_type() == at::kDouble ? static_cast<const double*>(values.const_data_ptr())[i]
                                               : static_cast<const float*>(values.const_data_ptr())[i];
  }
  const at::Tensor row_max_, sum_exp_, target_logit_, logit_sum_;
};

inline double* doubles(const at::Tensor& values) { return at::Tensor(values).mutable_data_ptr<double>(); }

/// A row of what the batch says of each token (PairInput, PolicyInput).
inline const double* input_row(const UnitTensors& t, int row) {
  return static_cast<const double*>(t.targets[row].const_data_ptr());
}

/// For each local token of a micro-batch, where its document begins among the B * S places.
inline std::vector<int64_t> document_places(const UnitTensors& t, const Parallel& parallel) {
  const int64_t length = t.shape.sequence;
  const std::vector<int64_t> positions = context_positions(parallel, length);
  const int64_t* starts = t.document_starts.data_ptr<int64_t>();
  std::vector<int64_t> places;
  places.reserve(static_cast<size_t>(t.shape.micro_batch) * positions.size());
  for (int64_t b = 0; b < t.shape.micro_batch; ++b)
    for (const int64_t position : positions) places.push_back(b * length + starts[b * length + position]);
  return places;
}

}  // namespace trireme::model
