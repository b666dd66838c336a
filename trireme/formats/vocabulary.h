// The names from trireme/checkpoint that every format uses: tensors, their dtypes and shapes, sources and sinks.
#pragma once

#include "trireme/checkpoint/dtype.h"
#include "trireme/checkpoint/read_budget.h"
#include "trireme/checkpoint/tensor_source.h"

namespace trireme::formats {

using checkpoint::convertible;
using checkpoint::Dtype;
using checkpoint::dtype_name;
using checkpoint::num_elements;
using checkpoint::ReadBudget;
using checkpoint::shape_text;
using checkpoint::size_of;
using checkpoint::tensor_bytes;
using checkpoint::TensorSink;
using checkpoint::TensorSource;
using checkpoint::TensorSpec;
using checkpoint::torch_name;

}  // namespace trireme::formats
