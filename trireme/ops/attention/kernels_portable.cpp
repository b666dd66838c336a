// Attention for any processor, and for float64 on all of them: 16-byte vectors, which GCC and Clang lower to
// whatever the target has.
#include "trireme/ops/attention/kernels-inl.h"

namespace trireme::ops {

using Double = PlainMath<double, 16, 2>;
using Float = PlainMath<float, 16, 2>;

const AttentionKernel kAttentionPortable{
    "portable",
    {forward_task<Double, double>, forward_task<Float, float>, forward_task<Float, Bfloat16>,
     forward_task<Float, Float16>},
    {backward_task<Double, double>, backward_task<Float, float>, backward_task<Float, Bfloat16>,
     backward_task<Float, Float16>},
    {write_rows<Double, double>, write_rows<Float, float>, write_rows<Float, Bfloat16>, write_rows<Float, Float16>},
    {paged_task<Double, double>, paged_task<Float, float>, paged_task<Float, Bfloat16>, paged_task<Float, Float16>}};

}  // namespace trireme::ops
