// Attention to a cache: argument checks, and the choice between the two ways (attention.h). Where the rows' lengths
// differ, both make one call per batch row.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/meter.h"
#include "trireme/ops/attention/attention.h"
#include "trireme/ops/attention/run.h"
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
    throw ShapeError(fmt::format("{}: the tensors are on {}, decoding has kernels for the CPU only; move them there",
                                 kDecodeOperation, q.device().str()));
  checked_call(kDecodeOperation, shape);
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
      throw ShapeError(
          fmt::format("{}: lengths[{}] is {}, with {} new it must be {} to {}, the tokens that the cache holds; make "
                      "the cache longer",
                      kDecodeOperation, b, length, shape.sequence, shape.sequence, k_cache.size(1)));
  }
}

struct Decoding {
  const AttentionKernel* kernel;
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
    AttentionCall call = checked_call(kDecodeOperation, shape);
    call.batch = rows, call.keys = length, call.first_query = length - N, call.causal = true;
    call.window = shape.window < length ? shape.window : 0;
    call.q_stride = {N * q.stride(0), q.stride(0)}, call.kv_stride = {capacity * kv_row, kv_row};
    call.out_stride = {N * shape.num_heads * d, shape.num_heads * d};
    call.q = part(q, b * call.q_stride.batch), call.out = part(out, b * call.out_stride.batch);
    call.k = part(k_cache, b * call.kv_stride.batch), call.v = part(v_cache, b * call.kv_stride.batch);
    return call;
  }

  void few(const int64_t* lengths) const {
    const base::Metered metered(base::Activity::attention);
    const AttentionPass run = attention_kernel(dtype, kernel).decode[static_cast<int>(dtype)];
    const int64_t rows = shape.num_heads / shape.num_kv_heads * shape.sequence;
    const int64_t bytes = attention_decode_bytes(rows, shape.head_dim);
    parallel_rows(shape.batch * shape.num_kv_heads, 1, [&](int64_t first, int64_t last) {
      struct Scratch;
      char* scratch = thread_scratch<Scratch, char>(bytes);
      for (int64_t task = first; task < last; ++task) {
        const int64_t b = task / shape.num_kv_heads;
        run(call_of(b, 1, lengths[b]), {.job = task % shape.num_kv_heads}, scratch);
      }
    });
  }

  void many(const int64_t* lengths) const {
    const int64_t longest = *std::max_element(lengths, lengths + shape.batch);
    const at::Tensor workspace =
        at::empty({attention_workspace_for(call_of(0, shape.batch, longest), dtype)}, at::kByte);
    const at::Tensor lse =
        at::empty({shape.batch, shape.num_heads, shape.sequence}, q.options().dtype(statistics_dtype(q.scalar_type())));
    for (int64_t b = 0, last = 0; b < shape.batch; b = last) {  // runs of equal lengths
      while (last < shape.batch && lengths[last] == lengths[b]) ++last;
      AttentionCall call = call_of(b, last - b, lengths[b]);
      call.lse = lse.mutable_data_ptr(), call.lse_head = shape.sequence;
      call.lse_batch = shape.num_heads * shape.sequence;
      run_attention(kDecodeOperation, AttentionDirection::forward, call, dtype, {{"q", q}}, workspace, kernel);
    }
  }
};

}  // namespace

void attention_decode(const at::Tensor& out, const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache,
                      const at::Tensor& lengths, const AttentionShape& shape, const AttentionKernel* kernel) {
  check(out, q, k_cache, v_cache, lengths, shape);
  const Decoding decoding{kernel, out, q, k_cache, v_cache, shape};
  const bool many = shape.sequence > 1 && shape.num_heads / shape.num_kv_heads * shape.sequence >= kDecodeRows;
  const auto* first = lengths.data_ptr<int64_t>();
  many ? decoding.many(first) : decoding.few(first);
}

}  // namespace trireme::ops
