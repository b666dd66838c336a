// Products with AVX-512 for processors without AVX512-BF16 (Skylake, Cascade Lake, Ice Lake), and those of float32 and
// float16 for all.
#include "trireme/ops/products/floats_avx512-inl.h"

namespace trireme::ops {

const GemmKernel kGemmFloatAvx512 = gemm_kernel<GemmFloat>("avx512");
const GemmKernel kGemmFloatWideAvx512 = gemm_kernel<GemmFloatWide>("avx512, 6 x 64");
const GemmKernel kGemmHalfAvx512 = gemm_kernel<Halves<GemmFloat>>("avx512");
const GemmKernel kGemmHalfWideAvx512 = gemm_kernel<Halves<GemmFloatWide>>("avx512, 6 x 64");
const GemmKernel kGemmBfloat16Avx512 = gemm_kernel<GemmWidened>("avx512");

}  // namespace trireme::ops
