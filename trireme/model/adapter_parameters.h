// The parameters of one module's adapter, behind those of its unit: A and B, and what else its AdapterSpec asks for.
// They are divided over tensor-parallel ranks like the matrix: what belongs to an output with the outputs, what belongs
// to an input with the inputs.
#pragma once

#include <string>
#include <vector>

#include "trireme/model/adapters.h"
#include "trireme/model/layers.h"

namespace trireme::model {

/// Turns a whole parameter into this rank's pieces of one dimension.
void divide(ParameterSpec& parameter, int dim, const std::vector<Piece>& pieces);

/// Appends the adapter of the matrix `specs[weight]` to `specs`. `begin`: the first column of the product's y that the
/// matrix gives.
PartAdapter add_adapter(std::vector<ParameterSpec>& specs, int weight, bool in_out, const std::string& module,
                        const AdapterSpec& adapter, int64_t begin);

/// Indices of the parameters of an adapter, in order: A, B, its bias, its magnitude, as far as it has them.
std::vector<int> parameters_of(const PartAdapter& adapter);

}  // namespace trireme::model
