// ContextAttention: causal attention of a block's local tokens, alone or together with the ranks that hold the rest
// of each sequence. Three same-shaped siblings: one rank, ring (keys and values travel), ulysses (tokens are traded
// for heads).
//
// Legend    T local tokens, S the whole sequence, H and K this rank's query and key/value heads (tensor parallelism
//           has divided them), d head dim, R = (H + 2 K) d; cp ranks
#pragma once

#include <memory>
#include <span>

#include "trireme/model/block_layout.h"
#include "trireme/model/unit.h"
#include "trireme/ops/ops.h"

namespace trireme::model {

/// What one block's attention computes beside the shapes.
struct AttentionTraits {
  double scale = 0;    ///< 0: 1 / sqrt(d)
  double softcap = 0;  ///< 0: none
  int64_t window = 0;  ///< keys that a query sees; 0: no limit
};

class ContextAttention {
 public:
  using Scratch = std::span<const at::Tensor>;

  virtual ~ContextAttention() = default;

  /// What a block saves for backward: the packed q|k|v rows and the log-sum-exp, in the layout attention runs in.
  virtual std::vector<int64_t> qkv_shape(const BatchShape& shape) const = 0;
  virtual std::vector<int64_t> lse_shape(const BatchShape& shape) const = 0;
  virtual std::vector<TensorSpec> forward_work(const BatchShape& shape, const Precision& precision) const = 0;
  virtual std::vector<TensorSpec> backward_work(const BatchShape& shape, const Precision& precision) const = 0;

  /// Where the projection shall put its rows [T, R]; rotated there, share() makes `qkv` of them.
  virtual at::Tensor projected(const at::Tensor& qkv, Scratch /*work*/, const BatchShape&) const { return qkv; }
  virtual void share(const at::Tensor& /*qkv*/, Scratch /*work*/, const BatchShape&, comm::Communicator*) const {}
  /// attended [T, H d] and lse from what share() made. starts [B*S]: UnitTensors::document_starts, may be undefined.
  virtual void forward(const at::Tensor& attended, const at::Tensor& lse, const at::Tensor& qkv, Scratch work,
                       const BatchShape& shape, const at::Tensor& starts, comm::Communicator* ranks) const = 0;
  /// d_qkv [T, R], of the projection's rows after their rotation.
  virtual void backward(const at::Tensor& d_qkv, const at::Tensor& d_attended, const at::Tensor& attended,
                        const at::Tensor& lse, const at::Tensor& qkv, Scratch work, const BatchShape& shape,
                        const at::Tensor& starts, comm::Communicator* ranks) const = 0;

  /// What share(), forward() and backward() say, in order.
  virtual void share_traffic(std::vector<TrafficRow>&, const BatchShape&, const Precision&) const {}
  virtual void forward_traffic(std::vector<TrafficRow>&, const BatchShape&, const Precision&) const {}
  virtual void backward_traffic(std::vector<TrafficRow>&, const BatchShape&, const Precision&) const {}
};

ops::AttentionShape attention_shape(int64_t batch, int64_t sequence, const BlockWidths& widths,
                                    const AttentionTraits& traits);

std::unique_ptr<ContextAttention> make_context_attention(const BlockWidths& widths, const AttentionTraits& traits,
                                                         const Parallel& parallel);
std::unique_ptr<ContextAttention> make_ring_attention(const BlockWidths& widths, const AttentionTraits& traits,
                                                      const Parallel& parallel);
std::unique_ptr<ContextAttention> make_ulysses_attention(const BlockWidths& widths, const AttentionTraits& traits,
                                                         const Parallel& parallel);

}  // namespace trireme::model
