// Attention with AVX-512 but without AVX512-BF16 (Skylake, Ice Lake): float32 in 64-byte vectors; bfloat16 and
// float16 are widened while packing.
#include "trireme/ops/attention/math_avx512-inl.h"

#include "trireme/ops/attention/kernels-inl.h"

namespace trireme::ops {

const AttentionKernel kAttentionAvx512{
    "avx512",
    {nullptr, forward_task<Float512, float>, forward_task<Float512, Bfloat16>, forward_task<Float512, Float16>},
    {nullptr, backward_task<Float512, float>, backward_task<Float512, Bfloat16>, backward_task<Float512, Float16>},
    {nullptr, write_rows<Float512, float>, write_rows<Float512, Bfloat16>, write_rows<Float512, Float16>},
    {nullptr, paged_task<Float512, float>, paged_task<Float512, Bfloat16>, paged_task<Float512, Float16>}};

}  // namespace trireme::ops
