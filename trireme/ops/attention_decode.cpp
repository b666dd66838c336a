// Attention to a cache: argument checks, and the choice between the two ways (attention.h). Both work on one call per
// batch row where the rows' lengths differ.
#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/meter.h"
#include "trireme/ops/attention.h"
#include "trireme/ops/attention_run.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/parallel.h"

namespace trireme::ops {
namespace {

constexpr auto kDecodeOperation = "attention_decode";

void check(const at::Tensor& out, const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
           const at::Tensor& lengths, const AttentionShape& shape) {
  const auto dtype = compute_dtype(kDecodeOperation, "q", q);
  if (on_one_gpu(kDecodeOperation,
                 {{"q", q}, {"out", out}, {"k_cache", k_cache}, {"v_cache", v_cache}, {"lengths", lengths}}))
    throw ShapeError(std::string(kDecodeOperation) + ": the tensors are on " + q.device().str() +
                     ", decoding has kernels for the CPU only; move them there");
  check_attention_sizes(kDecodeOperation, {{"batch", shape.batch},
                                           {"sequence", shape.sequence},
                                           {"num_heads", shape.num_heads},
                                           {"num_kv_heads", shape.num_kv_heads},
                                           {"head_dim", shape.head_dim}});
  check_attention_heads(kDecodeOperation, shape.num_heads, shape.num_kv_heads);
  check_attention_window(kDecodeOperation, shape.window);
  check_attention_softcap(kDecodeOperation, shape.softcap);
  const int64_t width = shape.num_heads * shape.head_dim, kv_width = shape.num_kv_heads * shape.head_dim;
  check_rows_view(kDecodeOperation, "q", q, {shape.batch * shape.sequence, width}, dtype);
  check_tensor(kDecodeOperation, "out", out, q.sizes(), dtype);
  check_dims(kDecodeOperation, "k_cache", k_cache, 3);
  check_tensor(kDecodeOperation, "k_cache", k_cache, {shape.batch, k_cache.size(1), kv_width}, dtype);
  check_tensor(kDecodeOperation, "v_cache", v_cache, k_cache.sizes(), dtype);
  check_tensor(kDecodeOperation, "lengths", lengths, {shape.batch}, at::kLong);
  for (int64_t b = 0; b < shape.batch; ++b) {
    const int64_t length = lengths.data_ptr<int64_t>()[b];
    if (length < shape.sequence || length > k_cache.size(1))
      throw ShapeError("attention_decode: lengths[" + std::to_string(b) + "] is " + std::to_string(length) + ", with " +
                       std::to_string(shape.sequence) + " new it must be " + std::to_string(shape.sequence) +
                       " to the " + std::to_string(k_cache.size(1)) +
                       " tokens that the cache holds; make the cache longer");
  }
}

struct Decoding {
  const AttentionKernel& kernel;
  const at::Tensor &out, &q, &k_cache, &v_cache;
  const AttentionShape& shape;
  const AttentionDtype dtype = attention_dtype(kDecodeOperation, q.scalar_type());

  /// The call for `rows` batch rows from b on, all of one length.
  AttentionCall call_of(int64_t b, int64_t rows, int64_t length) const {
    const int64_t N = shape.sequence, d = shape.head_dim, capacity = k_cache.size(1), kv_row = shape.num_kv_heads * d;
    const auto part = [&](const at::Tensor& x, int64_t elements) {
      return static_cast<char*>(const_cast<void*>(x.const_data_ptr())) +
             elements * static_cast<int64_t>(x.element_size());
    };
    AttentionCall call{};
    call.batch = rows, call.queries = N, call.keys = length, call.first_query = length - N, call.causal = true;
    call.num_heads = shape.num_heads, call.num_kv_heads = shape.num_kv_heads, call.head_dim = d;
    call.scale = attention_scale(shape.scale, d), call.softcap = shape.softcap;
    call.window = shape.window < length ? shape.window : 0;
    call.q_stride = {N * q.stride(0), q.stride(0)}, call.kv_stride = {capacity * kv_row, kv_row};
    call.out_stride = {N * shape.num_heads * d, shape.num_heads * d};
    call.q = part(q, b * call.q_stride.batch), call.out = part(out, b * call.out_stride.batch);
    call.k = part(k_cache, b * call.kv_stride.batch), call.v = part(v_cache, b * call.kv_stride.batch);
    return call;
  }

  void few(const int64_t* lengths) const {
    const base::Metered metered(base::Activity::attention);
    const AttentionKernel& runs = dtype == AttentionDtype::float64 ? kAttentionPortable : kernel;
    const AttentionPass run = runs.decode[static_cast<int>(dtype)];
    const int64_t rows = shape.num_heads / shape.num_kv_heads * shape.sequence;
    const int64_t bytes = attention_decode_bytes(rows, shape.head_dim) + 64;
    parallel_rows(shape.batch * shape.num_kv_heads, 1, [&](int64_t first, int64_t last) {
      struct Scratch;
      char* scratch = thread_scratch<Scratch, char>(bytes);
      scratch += (64 - reinterpret_cast<uintptr_t>(scratch) % 64) % 64;
      for (int64_t task = first; task < last; ++task) {
        const int64_t b = task / shape.num_kv_heads;
        run(call_of(b, 1, lengths[b]), {.job = task % shape.num_kv_heads}, scratch);
      }
    });
  }

  void many(const int64_t* lengths) const {
    const int64_t longest = *std::max_element(lengths, lengths + shape.batch);
    const auto bytes = attention_scratch_of({shape.batch * shape.num_kv_heads, longest, shape.head_dim}, dtype);
    const at::Tensor workspace = at::empty({bytes}, at::kByte);
    const at::Tensor lse =
        at::empty({shape.batch, shape.num_heads, shape.sequence}, q.options().dtype(statistics_dtype(q.scalar_type())));
    for (int64_t b = 0, last = 0; b < shape.batch; b = last) {  // runs of equal lengths
      while (last < shape.batch && lengths[last] == lengths[b]) ++last;
      AttentionCall call = call_of(b, last - b, lengths[b]);
      call.lse = lse.mutable_data_ptr(), call.lse_head = shape.sequence;
      call.lse_batch = shape.num_heads * shape.sequence;
      run_attention(kDecodeOperation, kernel, AttentionDirection::forward, call, dtype, workspace);
    }
  }
};

}  // namespace

void attention_decode_with(const AttentionKernel& kernel, const at::Tensor& out, const at::Tensor& q,
                           const at::Tensor& k_cache, const at::Tensor& v_cache, const at::Tensor& lengths,
                           const AttentionShape& shape) {
  check(out, q, k_cache, v_cache, lengths, shape);
  const Decoding decoding{kernel, out, q, k_cache, v_cache, shape};
  const bool many = shape.sequence > 1 && shape.num_heads / shape.num_kv_heads * shape.sequence >= kDecodeRows;
  const auto* first = lengths.data_ptr<int64_t>();
  many ? decoding.many(first) : decoding.few(first);
}

void attention_decode(const at::Tensor& out, const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                      const at::Tensor& lengths, const AttentionShape& shape) {
  attention_decode_with(*attention_kernels().front(), out, q, k_cache, v_cache, lengths, shape);
}

}  // namespace trireme::ops
