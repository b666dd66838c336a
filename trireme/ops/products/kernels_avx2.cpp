// Products with AVX2, for processors without AVX-512 (Haswell, Zen 1 to 3).
#include "trireme/ops/products/math_avx2-inl.h"

namespace trireme::ops {

const GemmKernel kGemmFloatAvx2 = gemm_kernel<Gemm256>("avx2");
const GemmKernel kGemmHalfAvx2 = gemm_kernel<Halves256>("avx2");
const GemmKernel kGemmBfloat16Avx2 = gemm_kernel<Bfloat16s256>("avx2");

}  // namespace trireme::ops
