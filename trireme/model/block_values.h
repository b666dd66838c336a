// The slots (Slots in unit.h) of a decoder block's values; private to decoder_block*.cpp. Some blocks lack some slots.
#pragma once

#include "trireme/model/context_attention.h"

namespace trireme::model::block {

enum Saved {
  kRstd1,
  kRstd2,
  kQkv,
  kAttended,
  kLse,
  kMid,
  kHidden,
  kMean1,  ///< norms with a mean
  kMean2,
  kRawQk,  ///< head norms
  kRstdQk,
  kAttentionOut,  ///< norms of branches
  kRstdPost1,
  kMlpOut,
  kRstdPost2,
};

enum Work {
  kNormed,  ///< forward
  kActivated,
  kDNormed,  ///< backward
  kDActivated,
  kDQkv,
  kDAttended,
  kAttention,  ///< first slot of the attention's own work, forward and backward
  kReducedRows = kAttention + ContextAttention::kNumSlots,  ///< sequence parallel, forward and backward
  kNormGradientParts,  ///< sequence parallel: gradients of norms from this rank's rows
  kHeadNormGradientParts,  ///< tensor parallel: gradients of head norms from this rank's heads
  kGathered,  ///< sequence parallel: rows of all ranks, in backward_weight
  kAllHeads,  ///< if ranks share key/value heads: gradients of all heads
  kAllHeadBiases,
  kBiases,  ///< gradients of this rank's q, k and v biases
  kInner,   ///< adapters (AdapterBuffers)
  kDInner,
  kDropped,
  kWide,
  kDropoutKeys,
  kScaled,
  kMagnitudes,
  kAdapterGradient,
  kAdapterBias,
  kAdapterParts,  ///< tensor parallel: gradients of adapters that are summed over ranks
  kWideSums,  ///< norms over all heads: a row's sums
  kFloat8,  ///< operands of a product, rounded to 8 bits
  kMlpGradient,  ///< parallel residual: the gradient of the input through the MLP
};

enum Deferred {
  kDy,
  kDeferredActivated,
  kNormed2,
  kDMid,
  kNormed1,
  kDeferredDQkv,
  kNormGradients,
  kHeadNormGradients,
  kDeferredInner,  ///< adapters of the four products in turn, and their gradients
  kDeferredDInner = kDeferredInner + 4,
  kDeferredMagnitudes = kDeferredDInner + 4,
};

}  // namespace trireme::model::block
