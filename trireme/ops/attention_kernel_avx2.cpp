// Attention with AVX2 and FMA: 32-byte vectors. bfloat16 is widened while packing.
#include "trireme/ops/attention_kernel-inl.h"

namespace trireme::ops {

using Float = PlainMath<float, 32, 2>;

const AttentionKernel kAttentionAvx2{"avx2",
                                     {nullptr, forward_job<Float, float>, forward_job<Float, Bfloat16>},
                                     {nullptr, backward_job<Float, float>, backward_job<Float, Bfloat16>}};

}  // namespace trireme::ops
