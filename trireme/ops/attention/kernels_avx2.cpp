// Attention with AVX2 and FMA: 32-byte vectors. bfloat16 is widened while packing.
#include "trireme/ops/attention/kernels-inl.h"

namespace trireme::ops {

using Float = PlainMath<float, 32, 3>;

const AttentionKernel kAttentionAvx2{"avx2",
                                     {nullptr, forward_task<Float, float>, forward_task<Float, Bfloat16>},
                                     {nullptr, backward_task<Float, float>, backward_task<Float, Bfloat16>},
                                     {nullptr, decode_task<Float, float>, decode_task<Float, Bfloat16>}};

}  // namespace trireme::ops
