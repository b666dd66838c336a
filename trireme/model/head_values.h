// The slots (Slots in unit.h) of the head's scratch; private to head*.cpp.
#pragma once

namespace trireme::model {

struct HeadWork {
  enum Slot {
    normed,
    rstd,
    mean,
    logits,
    sums,            ///< of rows' exponentials; if the loss is computed in chunks here
    row_weights,     ///< [T,3]: what each token's gradient is made of; of losses other than cross-entropy
    supervised,      ///< [2, T]: numbers of the rows with a target, and their targets; of pairs
    documents,       ///< [3 or 4, B S]: sums over replies, where their document begins; of pairs and policies
    weight_sum,      ///< backward: of several chunks of a bfloat16 gradient
    reduced_rows,    ///< backward, sequence parallel
    norm_gradients,  ///< likewise
    d_chunk,         ///< backward of an adapter: gradient of one chunk's input
    adapter_sums,    ///< gradients of its parameters, summed over chunks
    inner,           ///< AdapterBuffers
    d_inner,
    dropped,
    wide,
    keys,
    scaled,
    magnitudes,
    adapter_gradient,
    adapter_bias,
  };
};

}  // namespace trireme::model
