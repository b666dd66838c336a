// The weights of units that compute without an engine: for generation and for predicting labels.
#pragma once

#include <functional>
#include <vector>

#include "trireme/model/model.h"

namespace trireme::model {

/// Writes one parameter. `tensor` is zeroed and has the compute dtype; padding stays zero. Of a matrix that is kept in
/// a few bits it is the record, bytes.
using FillWeights = std::function<void(const ParameterSpec& parameter, const at::Tensor& tensor)>;

/// The parameters of the units [first, last), by unit of the model; empty for all others. Parameters that form one
/// matrix lie in one tensor, and a tied matrix exists once.
std::vector<std::vector<at::Tensor>> unit_weights(const Model& model, int first, int last, at::ScalarType dtype,
                                                  const FillWeights& fill);

}  // namespace trireme::model
