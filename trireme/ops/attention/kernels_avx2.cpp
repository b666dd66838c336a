// Attention with AVX2 and FMA: 32-byte vectors. bfloat16 and float16 are widened while packing.
#include "trireme/ops/attention/kernels-inl.h"

namespace trireme::ops {

using Float = PlainMath<float, 32, 3>;

const AttentionKernel kAttentionAvx2{
    "avx2",
    {nullptr, forward_task<Float, float>, forward_task<Float, Bfloat16>, forward_task<Float, Float16>},
    {nullptr, backward_task<Float, float>, backward_task<Float, Bfloat16>, backward_task<Float, Float16>},
    {nullptr, paged_task<Float, float>, paged_task<Float, Bfloat16>, paged_task<Float, Float16>}};

}  // namespace trireme::ops
