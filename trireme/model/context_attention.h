// ContextAttention: attention of the local tokens of a block, on one rank or with the context-parallel ranks
// that hold the rest of each sequence. It has three implementations: one rank, ring (keys and values travel around the
// ranks), ulysses (ranks exchange tokens for heads).
//
// Legend    T local tokens, S tokens of the whole sequence, H and K this rank's query and key/value heads (already
//           divided by tensor parallelism), d head dim, R = (H + 2 K) d, cp context-parallel ranks
#pragma once

#include <memory>
#include <span>

#include "trireme/model/block_layout.h"
#include "trireme/model/dropout.h"
#include "trireme/model/unit.h"
#include "trireme/ops/ops.h"

namespace trireme::model {

/// What one block's attention computes, apart from shapes.
struct AttentionTraits {
  double scale = 0;    ///< 0: 1 / sqrt(d)
  double softcap = 0;  ///< 0: none
  int64_t window = 0;  ///< keys that a query sees; 0: no limit
  bool bidirectional = false;  ///< a query sees later keys of its document too; on one rank only
  Dropout dropout = {};  ///< of the weights
  int64_t first_head = 0;  ///< the number of this rank's first query head in the model
};

class ContextAttention {
 public:
  using Scratch = std::span<const at::Tensor>;
  static constexpr int kNumSlots = 5;  ///< at most this many tensors of work

  virtual ~ContextAttention() = default;

  /// Shapes of what a block saves for backward: the packed q|k|v rows and the log-sum-exp, as attention lays them out.
  virtual std::vector<int64_t> qkv_shape(const BatchShape& shape) const = 0;
  virtual std::vector<int64_t> lse_shape(const BatchShape& shape) const = 0;
  virtual std::vector<TensorSpec> forward_work(const BatchShape& shape, const Precision& precision) const = 0;
  virtual std::vector<TensorSpec> backward_work(const BatchShape& shape, const Precision& precision) const = 0;

  /// The tensor for the projection's rows [T, R]. The block rotates them there; then share() turns them into `qkv`.
  virtual at::Tensor projected(const at::Tensor& qkv, Scratch /*work*/, const BatchShape&) const { return qkv; }
  virtual void share(const at::Tensor& /*qkv*/, Scratch /*work*/, const BatchShape&, comm::Communicator*) const {}
  /// Writes attended [T, H d] and lse from share()'s qkv. starts [B*S]: document_starts of UnitTensors, or undefined.
  virtual void forward(const at::Tensor& attended, const at::Tensor& lse, const at::Tensor& qkv, Scratch work,
                       const BatchShape& shape, const at::Tensor& starts, const Randomness& random,
                       comm::Communicator* ranks) const = 0;
  /// Writes d_qkv [T, R], the gradient of the projection's rows after their rotation.
  virtual void backward(const at::Tensor& d_qkv, const at::Tensor& d_attended, const at::Tensor& attended,
                        const at::Tensor& lse, const at::Tensor& qkv, Scratch work, const BatchShape& shape,
                        const at::Tensor& starts, const Randomness& random, comm::Communicator* ranks) const = 0;

  /// Append the calls of share(), forward() and backward() on the communicator, in order.
  virtual void share_traffic(std::vector<TrafficRow>&, const BatchShape&, const Precision&) const {}
  virtual void forward_traffic(std::vector<TrafficRow>&, const BatchShape&, const Precision&) const {}
  virtual void backward_traffic(std::vector<TrafficRow>&, const BatchShape&, const Precision&) const {}
};

ops::AttentionShape attention_shape(int64_t batch, int64_t sequence, const BlockWidths& widths,
                                    const AttentionTraits& traits);

/// `work`, and with dropout the keys of `queries` queries in its last slot.
std::vector<TensorSpec> with_dropout_keys(std::vector<TensorSpec> work, const AttentionTraits& traits, int64_t queries);
/// The mask of this call's weights: writes the keys of the tokens that `parallel` says. Heads count from
/// traits.first_head, keys from the sequence's start.
ops::AttentionDropout weight_dropout(const AttentionTraits& traits, const Randomness& random,
                                     ContextAttention::Scratch work, const BatchShape& shape, const Parallel& parallel);

std::unique_ptr<ContextAttention> make_context_attention(const BlockWidths& widths, const AttentionTraits& traits,
                                                         const Parallel& parallel);
std::unique_ptr<ContextAttention> make_ring_attention(const BlockWidths& widths, const AttentionTraits& traits,
                                                      const Parallel& parallel);
std::unique_ptr<ContextAttention> make_ulysses_attention(const BlockWidths& widths, const AttentionTraits& traits,
                                                         const Parallel& parallel);

}  // namespace trireme::model
