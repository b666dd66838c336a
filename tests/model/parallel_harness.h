// Runs all units of a model forward and backward on tp x cp thread ranks, without an engine: every tensor a unit
// declares is allocated by itself and filled with NaN, so that nothing unwritten is read unnoticed.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "trireme/model/model.h"

namespace trireme::model {

struct UnitRun {
  ModelConfig config;
  Precision precision{at::kDouble, at::kDouble};
  BatchShape shape{2, 16};
  int tp = 1, cp = 1;
  bool sequence_parallel = false;
  Context context = Context::ring;
  bool split = false;                      ///< backward in two halves where a unit has them
  bool recompute = false;                  ///< forget and compute again between forward and backward
  std::vector<std::string> recompute_names = {};  ///< empty: all of what is saved
  bool adds = false;                       ///< every gradient is added to `found`, as to earlier micro-batches
  double found = 3;
  Adapters adapters = {};                  ///< with any, dropout is active
  bool pads_vocabulary = false;            ///< as on a GPU
};

struct RankResult {
  Parallel parallel;
  double loss = 0, loss_in_backward = 0;
  std::vector<at::Tensor> boundaries;      ///< d_boundary after the backward of unit i + 1: gradient of its input
  std::map<std::string, at::Tensor> gradients;
  std::map<std::string, ParameterSpec> specs;
  std::vector<std::string> traffic_errors; ///< calls that are not what traffic() declares
  int64_t num_calls = 0;
};

/// By rank: tensor-parallel neighbours together.
std::vector<RankResult> run_units(const UnitRun& run);

/// The whole of each parameter's gradient, summed over the context-parallel ranks. Fails the running test where
/// tensor-parallel ranks that hold the same elements differ, or elements are in no rank or counted not once.
std::map<std::string, at::Tensor> whole_gradients(const std::vector<RankResult>& ranks);
/// The gradient of the input of unit `number` + 1, all rows in the order of one rank.
at::Tensor whole_boundary(const UnitRun& run, const std::vector<RankResult>& ranks, size_t number);
double whole_loss(const std::vector<RankResult>& ranks);

double relative_distance(const at::Tensor& a, const at::Tensor& b);

}  // namespace trireme::model
