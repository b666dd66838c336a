// Attention by cuDNN on an NVIDIA GPU. Each thread keeps a graph for each shape, which its first call builds. Results
// are written to their places, and the backward's workspace is the plan's.
//
// Where sums must have a fixed order, cuDNN's backward keeps the gradients of all scores. So such a call runs in parts
// of neighbouring sequences, or heads, whose workspace is bounded (cudnn.h).
#include "trireme/ops/attention/cudnn.h"

#if __has_include(<cudnn_frontend.h>) && __has_include(<cudnn.h>)

#define CUDNN_FRONTEND_SKIP_JSON_LIB
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <dlfcn.h>

#include <unordered_map>

#include <cudnn_frontend.h>

#include <ATen/cudnn/Handle.h>
#include <c10/cuda/CUDAFunctions.h>

#include <array>
#include <bit>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/ops/cuda/scratch.h"

// LibTorch has loaded it.
void* cudnn_frontend::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW);

namespace trireme::ops::cuda {
namespace {

namespace fe = cudnn_frontend;
using Graph = fe::graph::Graph;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using Sizes = std::vector<int64_t>;

enum Place : int64_t { kQ = 1, kK, kV, kOut, kLse, kDOut, kDq, kDk, kDv };

constexpr int64_t kFewestQueries = 64;

bool can_run(const AttentionCall& call, AttentionDtype dtype) {
  return fe::cudnn_dlhandle != nullptr && dtype == AttentionDtype::bfloat16 && call.causal && call.softcap == 0 &&
         call.starts == nullptr && !call.whole_documents && call.first_query == 0 && call.queries == call.keys &&
         call.queries >= kFewestQueries && cudnn_takes_heads(call.head_dim) && in_packs(call.q) && in_packs(call.k) &&
         in_packs(call.v) && in_packs(call.q_stride) && in_packs(call.kv_stride) && in_packs(call.out) &&
         in_packs(call.out_stride) && in_packs(call.d_out) && in_packs(call.d_out_stride) && in_packs(call.dq) &&
         in_packs(call.dk) && in_packs(call.dv) && in_packs(call.dq_stride) && in_packs(call.dkv_stride);
}

struct Compiled {
  std::shared_ptr<Graph> graph;  ///< null: cuDNN has no kernel for it
  int64_t workspace = 0;
};

/// The graph of a part of a call with sizes and strides of `call`.
class Builder {
 public:
  Builder(const AttentionCall& call, const CudnnParts& part)
      : call_(call), batch_(part.batch), kv_heads_(part.kv_heads) {
    graph_->set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  Compiled forward() {
    auto options = masked(fe::graph::SDPA_attributes()).set_generate_stats(true);
    const auto [out, lse] = graph_->sdpa(input(kQ), input(kK), input(kV), options);
    output(kOut, out);
    output(kLse, lse);
    return built();
  }

  Compiled backward(bool any_order) {
    auto options = masked(fe::graph::SDPA_backward_attributes()).set_deterministic_algorithm(!any_order);
    const auto [dq, dk, dv] =
        graph_->sdpa_backward(input(kQ), input(kK), input(kV), input(kOut), input(kDOut), input(kLse), options);
    output(kDq, dq);
    output(kDk, dk);
    output(kDv, dv);
    return built();
  }

 private:
  template <class Options>
  Options masked(Options options) const {
    options.set_name("attention")
        .set_attn_scale(static_cast<float>(call_.scale))
        .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
    if (call_.window > 0) options.set_diagonal_band_left_bound(static_cast<int>(call_.window));
    return options;
  }

  Sizes sizes_of(Place place) const {
    const bool of_keys = place == kK || place == kV || place == kDk || place == kDv;
    const int64_t heads = of_keys ? kv_heads_ : kv_heads_ * (call_.num_heads / call_.num_kv_heads);
    return {batch_, heads, call_.queries, place == kLse ? 1 : call_.head_dim};
  }

  Sizes strides_of(Place place) const {
    if (place == kLse) return {call_.lse_batch, call_.lse_head, 1, 1};
    const AttentionStride stride = place == kQ                  ? call_.q_stride
                                   : place == kK || place == kV ? call_.kv_stride
                                   : place == kOut              ? call_.out_stride
                                   : place == kDOut             ? call_.d_out_stride
                                   : place == kDq               ? call_.dq_stride
                                                                : call_.dkv_stride;
    return {stride.batch, call_.head_dim, stride.row, 1};
  }

  template <class Attributes>
  void describe(Place place, Attributes& tensor) const {
    tensor.set_uid(place)
        .set_dim(sizes_of(place))
        .set_stride(strides_of(place))
        .set_data_type(place == kLse ? fe::DataType_t::FLOAT : fe::DataType_t::BFLOAT16);
  }

  Tensor input(Place place) {
    fe::graph::Tensor_attributes tensor;
    describe(place, tensor);
    return graph_->tensor(tensor);
  }

  void output(Place place, const Tensor& tensor) const {
    tensor->set_output(true);
    describe(place, *tensor);
  }

  Compiled built() const {
    int64_t workspace = 0;
    if (graph_->build(at::native::getCudnnHandle(), {fe::HeurMode_t::A}).is_bad() ||
        graph_->get_workspace_size(workspace).is_bad())
      return {};
    return {graph_, workspace};
  }

  const AttentionCall& call_;
  int64_t batch_, kv_heads_;
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
};

Compiled compile(const AttentionCall& call, const CudnnParts& part, bool backward, bool any_order) try {
  Builder builder(call, part);
  return backward ? builder.backward(any_order) : builder.forward();
} catch (const std::exception&) {
  return {};
}

/// The calling thread's graph for a part of `call`.
const Compiled& compiled(const AttentionCall& call, const CudnnParts& part, bool backward, bool any_order) {
  using Key = std::array<int64_t, 25>;
  thread_local std::map<Key, Compiled> all;
  Key key = {backward,
             any_order,
             c10::cuda::current_device(),
             part.batch,
             part.kv_heads,
             call.num_heads,
             call.num_kv_heads,
             call.queries,
             call.head_dim,
             call.window,
             std::bit_cast<int64_t>(call.scale),
             call.lse_batch,
             call.lse_head};
  size_t next = 13;
  for (const AttentionStride& stride : {call.q_stride, call.kv_stride, call.out_stride})
    key[next++] = stride.batch, key[next++] = stride.row;
  if (backward)
    for (const AttentionStride& stride : {call.d_out_stride, call.dq_stride, call.dkv_stride})
      key[next++] = stride.batch, key[next++] = stride.row;
  const auto found = all.find(key);
  return found != all.end() ? found->second : all.emplace(key, compile(call, part, backward, any_order)).first->second;
}

/// The address of element (sequence, head) of a tensor of heads, of which each element has `bytes`.
void* at(const void* data, int64_t bytes, int64_t element) {
  return const_cast<char*>(static_cast<const char*>(data)) + bytes * element;
}

void run_part(const AttentionCall& call, const Compiled& part, int64_t sequence, int64_t kv_head, bool backward,
              void* workspace) {
  const int64_t d = call.head_dim, head = kv_head * (call.num_heads / call.num_kv_heads);
  const auto of_queries = [&](const void* data, AttentionStride stride) {
    return at(data, 2, sequence * stride.batch + head * d);
  };
  const auto of_keys = [&](const void* data, AttentionStride stride) {
    return at(data, 2, sequence * stride.batch + kv_head * d);
  };
  std::unordered_map<int64_t, void*> places = {
      {kQ, of_queries(call.q, call.q_stride)},
      {kK, of_keys(call.k, call.kv_stride)},
      {kV, of_keys(call.v, call.kv_stride)},
      {kOut, of_queries(call.out, call.out_stride)},
      {kLse, at(call.lse, 4, sequence * call.lse_batch + head * call.lse_head)}};
  if (backward)
    places.insert({{kDOut, of_queries(call.d_out, call.d_out_stride)},
                   {kDq, of_queries(call.dq, call.dq_stride)},
                   {kDk, of_keys(call.dk, call.dkv_stride)},
                   {kDv, of_keys(call.dv, call.dkv_stride)}});
  if (auto status = part.graph->execute(at::native::getCudnnHandle(), places, workspace); status.is_bad())
    throw Error("[cuda] attention: cuDNN says " + status.get_message());
}

}  // namespace

bool cudnn_attention(const AttentionCall& call, AttentionDtype dtype, bool backward, bool any_order) {
  if (!can_run(call, dtype)) return false;
  const CudnnParts part = backward ? cudnn_backward_parts(call, any_order) : CudnnParts{call.batch, call.num_kv_heads};
  if (part.batch == 0) return false;
  const Compiled& graph = compiled(call, part, backward, any_order);
  if (!graph.graph) return false;
  std::optional<Scratch> scratch;
  void* workspace = call.workspace;
  if (graph.workspace > call.workspace_bytes) workspace = scratch.emplace(graph.workspace).as<void>();
  for (int64_t sequence = 0; sequence < call.batch; sequence += part.batch)
    for (int64_t kv_head = 0; kv_head < call.num_kv_heads; kv_head += part.kv_heads)
      run_part(call, graph, sequence, kv_head, backward, workspace);
  return true;
}

}  // namespace trireme::ops::cuda

#else

namespace trireme::ops::cuda {

bool cudnn_attention(const AttentionCall&, AttentionDtype, bool, bool) { return false; }

}  // namespace trireme::ops::cuda

#endif
