// What folders of bitsandbytes hold of a matrix in 4 bits: its codes under the matrix's own name, and beside them
// statistics and a JSON object as bytes.
//
//   P              uint8 [(n + 1) / 2, 1]      P.quant_map       float32 [16]
//   P.absmax       float32 [blocks]            P.quant_state.bitsandbytes__nf4   uint8: the JSON object
// nested:
//   P.absmax       uint8 [blocks]              P.nested_absmax   float32;  P.nested_quant_map   float32 [256]
#pragma once

#include <string>
#include <vector>

#include "trireme/checkpoint/dtype.h"
#include "trireme/ops/blocks/quantize.h"

namespace trireme::checkpoint {

/// The JSON object, byte for byte as Python writes it. `dtype`: of the matrix before, and of what is computed with it.
std::string quant_state_json(const ops::Quantized& matrix, const std::vector<int64_t>& shape, Dtype dtype);

/// The name of the JSON object's tensor, behind the matrix's.
std::string quant_state_suffix(base::BlockFormat format);

}  // namespace trireme::checkpoint
