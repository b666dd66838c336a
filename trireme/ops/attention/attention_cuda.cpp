// Attention on a GPU: cuDNN's if it supports the call, as in most training in bfloat16; LibTorch's flash attention
// where only that does; our own kernels otherwise.

// First, because the next headers need it complete.
#include <ATen/core/Tensor.h>

#include <ATen/Context.h>
#include <ATen/ops/_flash_attention_backward_cuda_dispatch.h>
#include <ATen/ops/_flash_attention_forward_cuda_dispatch.h>
#include <ATen/ops/from_blob.h>
#include <c10/cuda/CUDAFunctions.h>

#include <atomic>
#include <mutex>
#include <optional>

#include "trireme/ops/attention/cudnn.h"
#include "trireme/ops/cuda/kernels.h"

namespace trireme::ops::cuda {
namespace {

std::atomic<bool> cudnn_allowed = true, flash_allowed = true;
thread_local bool any_order = false;

/// Flash attention reads and writes 16 bytes at a time and supports no documents; LibTorch's supports no softcap.
bool flash_does(const AttentionCall& call, AttentionDtype dtype) {
  return flash_allowed.load(std::memory_order_relaxed) && dtype == AttentionDtype::bfloat16 && call.causal &&
         call.softcap == 0 && call.starts == nullptr && call.first_query == 0 && call.queries == call.keys &&
         call.head_dim <= 256 && call.head_dim % 8 == 0 && in_packs(call.q) && in_packs(call.k) && in_packs(call.v) &&
         in_packs(call.q_stride) && in_packs(call.kv_stride) && in_packs(call.out) && in_packs(call.out_stride) &&
         in_packs(call.d_out) && in_packs(call.d_out_stride);
}

at::Tensor view(const void* data, at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  const c10::Device device(c10::kCUDA, c10::cuda::current_device());
  return at::for_blob(const_cast<void*>(data), sizes)
      .strides(strides)
      .options(at::TensorOptions().dtype(dtype).device(device))
      .target_device(device)
      .make_tensor();
}

/// The heads [B, S, heads, d] at `data`.
at::Tensor heads_of(const AttentionCall& call, const void* data, int64_t heads, AttentionStride stride) {
  return view(data, {call.batch, call.queries, heads, call.head_dim}, {stride.batch, stride.row, call.head_dim, 1},
              at::kBFloat16);
}

at::Tensor lse_of(const AttentionCall& call) {
  return view(call.lse, {call.batch, call.num_heads, call.queries}, {call.lse_batch, call.lse_head, 1}, at::kFloat);
}

/// Flash attention's window: how many keys before its own a query sees.
std::optional<int64_t> window_left(const AttentionCall& call) {
  return call.window > 0 ? std::optional(call.window - 1) : std::nullopt;
}

void flash_forward(const AttentionCall& call) {
  const auto [out, lse, rng_state, unused, mask] = at::cuda::_flash_attention_forward(
      heads_of(call, call.q, call.num_heads, call.q_stride), heads_of(call, call.k, call.num_kv_heads, call.kv_stride),
      heads_of(call, call.v, call.num_kv_heads, call.kv_stride), std::nullopt, std::nullopt, call.queries, call.keys,
      /*dropout_p=*/0, /*is_causal=*/true, /*return_debug_mask=*/false, call.scale, window_left(call), 0);
  heads_of(call, call.out, call.num_heads, call.out_stride).copy_(out);
  lse_of(call).copy_(lse.narrow(2, 0, call.queries));
}

/// During its lifetime LibTorch's flash attention adds gradients in a fixed order. This needs a flag of the whole
/// process, so threads take turns. The flag would also make LibTorch fill new memory; this stays off.
class InOneOrder {
 public:
  InOneOrder() : lock_(mutex()) {
    context_.setDeterministicFillUninitializedMemory(false);
    context_.setDeterministicAlgorithms(true, /*warn_only=*/false);
  }
  ~InOneOrder() {
    context_.setDeterministicAlgorithms(was_, was_warn_only_);
    context_.setDeterministicFillUninitializedMemory(was_fill_);
  }
  InOneOrder(const InOneOrder&) = delete;
  InOneOrder& operator=(const InOneOrder&) = delete;

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }

  std::lock_guard<std::mutex> lock_;
  at::Context& context_ = at::globalContext();
  const bool was_ = context_.deterministicAlgorithms(), was_warn_only_ = context_.deterministicAlgorithmsWarnOnly(),
             was_fill_ = context_.deterministicFillUninitializedMemory();
};

/// Flash attention rounds the gradients of grouped heads one by one before it adds them.
void flash_backward(const AttentionCall& call) {
  const at::Tensor d_out = heads_of(call, call.d_out, call.num_heads, call.d_out_stride);
  const at::Tensor out = heads_of(call, call.out, call.num_heads, call.out_stride);
  const at::Tensor q = heads_of(call, call.q, call.num_heads, call.q_stride);
  const at::Tensor k = heads_of(call, call.k, call.num_kv_heads, call.kv_stride);
  const at::Tensor v = heads_of(call, call.v, call.num_kv_heads, call.kv_stride);
  const at::Tensor lse = lse_of(call).contiguous();
  const auto [dq, dk, dv] = [&] {
    const InOneOrder in_one_order;
    return at::cuda::_flash_attention_backward(d_out, q, k, v, out, lse, {}, {}, call.queries, call.keys,
                                               /*dropout_p=*/0, /*is_causal=*/true, /*rng_state=*/{}, /*unused=*/{},
                                               call.scale, window_left(call), 0);
  }();
  heads_of(call, call.dq, call.num_heads, call.dq_stride).copy_(dq);
  heads_of(call, call.dk, call.num_kv_heads, call.dkv_stride).copy_(dk);
  heads_of(call, call.dv, call.num_kv_heads, call.dkv_stride).copy_(dv);
}

}  // namespace

void Kernels::allow_attention(bool cudnn, bool flash) const { cudnn_allowed = cudnn, flash_allowed = flash; }

void Kernels::allow_any_order(bool allowed) const { any_order = allowed; }

void Kernels::attention_forward(const AttentionCall& call, AttentionDtype dtype) const {
  if (cudnn_allowed && cudnn_attention(call, dtype, /*backward=*/false, any_order)) return;
  flash_does(call, dtype) ? flash_forward(call) : own_attention(call, dtype, /*backward=*/false);
}

void Kernels::attention_backward(const AttentionCall& call, AttentionDtype dtype) const {
  if (cudnn_allowed && cudnn_attention(call, dtype, /*backward=*/true, any_order)) return;
  flash_does(call, dtype) ? flash_backward(call) : own_attention(call, dtype, /*backward=*/true);
}

}  // namespace trireme::ops::cuda
