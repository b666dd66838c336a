// Attention with AVX-512 but without AVX512-BF16 (Skylake, Ice Lake): float32 in 64-byte vectors; bfloat16 is
// widened while packing.
#include "trireme/ops/attention/math_avx512-inl.h"

#include "trireme/ops/attention/kernels-inl.h"

namespace trireme::ops {

const AttentionKernel kAttentionAvx512{"avx512",
                                       {nullptr, forward_task<Float512, float>, forward_task<Float512, Bfloat16>},
                                       {nullptr, backward_task<Float512, float>, backward_task<Float512, Bfloat16>},
                                       {nullptr, decode_task<Float512, float>, decode_task<Float512, Bfloat16>}};

}  // namespace trireme::ops
