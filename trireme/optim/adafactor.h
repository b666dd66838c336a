// Adafactor keeps the second moments of a matrix as one number for each row and each column (Shazeer & Stern, 2018). So
// its state has other shapes than the parameters, and belongs to whole tensors. Tensor-parallel ranks keep the rows and
// columns of the whole matrix.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/optim/by_tensor.h"

namespace trireme::optim {

/// A tensor of state that belongs to a whole parameter.
struct WholeState {
  std::string name;  ///< "exp_avg_sq_row"
  std::vector<int64_t> shape;
  bool bytes = false;  ///< codes of 8 bits, otherwise numbers of the master's dtype
  /// Each of its elements belongs to so many of the parameter, in their order, and a tensor-parallel rank keeps its own
  /// part; 0: all tensor-parallel ranks keep all of it.
  int64_t elements_each = 0;
  /// Elements that a rank keeps of `parameter`'s, and what they take in memory: elements of the master's dtype (four
  /// bytes, if there are codes).
  int64_t held(const model::ParameterSpec& parameter) const {
    if (elements_each == 0) return c10::multiply_integers(shape);
    return (parameter.numel() + elements_each - 1) / elements_each;
  }
  int64_t floats(const model::ParameterSpec& parameter) const {
    return bytes ? (held(parameter) + 3) / 4 : held(parameter);
  }
};

/// What `rule` keeps of a parameter of this whole shape, in the order in which it lies in memory, parameter after
/// parameter: transformers' names and shapes. Other rules keep nothing of the kind.
std::vector<WholeState> whole_state(Rule rule, std::span<const int64_t> shape);

/// The shape of the state whose name ends in that of one of whole_state(), or else `parameter`, the parameter's.
std::vector<int64_t> state_shape(std::string_view name, const std::vector<int64_t>& parameter);

/// Elements of the state of all tensors of `segments`.
int64_t whole_state_elements(Rule rule, std::span<const DecaySegment> segments);

/// The learning rate of step number `step` with OptimizerOptions::relative_step, instead of lr.
double relative_rate(const OptimizerOptions& options, int64_t step);
/// The learning rate of a step, of which the optimizer has skipped some before: lr, or relative_rate().
inline double rate_of(const OptimizerOptions& options, int64_t skipped) {
  return options.relative_step ? relative_rate(options, options.step - skipped) : options.lr;
}

/// One step; `state` has one tensor [whole_state_elements()]. With G = g^2 + 1e-30 and b = 1 - step^-0.8:
///   row = b row + (1 - b) mean of G over columns;  column likewise;  for vectors v = b v + (1 - b) G
///   u = g / sqrt(row column / mean of row), or g / sqrt(v);  u /= max(1, RMS(u))
///   p -= lr' (u + w p), lr' = lr, or with relative_step min(0.01, 1 / sqrt(step)), and with scale_parameter times
///   max(0.001, RMS(p))
/// Numerics  sums in float64, from a tensor's first element to its last
/// Source    Shazeer & Stern, 2018; transformers.optimization.Adafactor (without its first moment)
void step_adafactor(const StepTensors& tensors, std::span<const DecaySegment> segments, const OptimizerOptions& options,
                    const AddParts& add_parts);

/// As step_work_bytes() and step_traffic().
int64_t adafactor_work_bytes(std::span<const DecaySegment> segments);
std::vector<model::TrafficRow> adafactor_traffic(std::span<const DecaySegment> segments);

}  // namespace trireme::optim
