// Our own attention on a GPU. Forward with an online softmax, a block of threads per tile of queries; backward as two
// kernels, one per tile of queries for dq and one per tile of keys for dk and dv, so that no two blocks add to the same
// sums. Tiles of keys that no query of a tile sees are skipped.
#include "trireme/ops/attention_kernel_cuda.h"

#include <string>

#include "trireme/base/error.h"
#include "trireme/ops/attention_mma_cuda-inl.h"
#include "trireme/ops/attention_plain_cuda-inl.h"

namespace trireme::ops::cuda {
namespace {

void check(const AttentionCall& call) {
  if (call.head_dim > 256)
    throw ShapeError("attention: head_dim is " + std::to_string(call.head_dim) + ", on a GPU it may be at most 256");
}

}  // namespace

void own_attention_forward(const AttentionCall& call, AttentionDtype dtype) {
  check(call);
  switch (dtype) {
    case AttentionDtype::float64:
      return plain_attention_forward<double>(call);
    case AttentionDtype::float32:
      return plain_attention_forward<float>(call);
    case AttentionDtype::bfloat16:
      return mma_attention_forward(call);
  }
}

void own_attention_backward(const AttentionCall& call, AttentionDtype dtype) {
  check(call);
  switch (dtype) {
    case AttentionDtype::float64:
      return plain_attention_backward<double>(call);
    case AttentionDtype::float32:
      return plain_attention_backward<float>(call);
    case AttentionDtype::bfloat16:
      return mma_attention_backward(call);
  }
}

}  // namespace trireme::ops::cuda
