// Our own attention on a GPU. The forward has an online softmax and a block of threads per tile of queries. The backward
// is two kernels, with a block per tile of queries for dq, and per tile of keys for dk and dv: so no two blocks add to the
// same sums. Tiles of keys that no query of a tile sees are skipped.
#include <string>

#include "trireme/base/error.h"
#include "trireme/ops/attention/mma_cuda-inl.h"
#include "trireme/ops/attention/plain_cuda-inl.h"

namespace trireme::ops::cuda {

void own_attention(const AttentionCall& call, AttentionDtype dtype, bool backward) {
  if (call.head_dim > 256)
    throw ShapeError("attention: head_dim is " + std::to_string(call.head_dim) + ", on a GPU it may be at most 256");
  switch (dtype) {
    case AttentionDtype::float64:
      return backward ? plain_attention_backward<double>(call) : plain_attention_forward<double>(call);
    case AttentionDtype::float32:
      return backward ? plain_attention_backward<float>(call) : plain_attention_forward<float>(call);
    case AttentionDtype::bfloat16:
      return backward ? mma_attention_backward(call) : mma_attention_forward(call);
    case AttentionDtype::float16:
      throw ShapeError("attention: float16 has no kernel on a GPU yet; use bfloat16");
  }
}

}  // namespace trireme::ops::cuda
