// Attention for any processor, and for float64 on all of them: 16-byte vectors, which GCC and Clang lower to
// whatever the target has.
#include "trireme/ops/attention_kernel-inl.h"

namespace trireme::ops {

using Double = PlainMath<double, 16, 2>;
using Float = PlainMath<float, 16, 2>;

const AttentionKernel kAttentionPortable{
    "portable",
    {forward_job<Double, double>, forward_job<Float, float>, forward_job<Float, Bfloat16>},
    {backward_job<Double, double>, backward_job<Float, float>, backward_job<Float, Bfloat16>}};

}  // namespace trireme::ops
