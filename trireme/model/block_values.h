// The order in which a decoder block declares its values; private to decoder_block*.cpp.
#pragma once

namespace trireme::model::block {

/// Behind these lie those that not every block has: SavedPlaces.
enum Saved { kRstd1, kRstd2, kQkv, kAttended, kLse, kMid, kHidden, kOptional };
/// Behind these lies the attention's own work, and last, under sequence parallelism, a part of reduced rows.
enum ForwardWork { kNormed, kActivated, kForwardAttention };
/// Behind these: the attention's own work; under sequence parallelism reduced rows and norm gradients; where tensor
/// parallel ranks have each a part of them, gradients of head norms; where ranks share key/value heads, the gradients
/// of all heads (and of their biases, and of this rank's).
enum BackwardWork { kDNormed, kDActivated, kDQkv, kDAttended, kBackwardAttention };
enum Deferred { kDy, kDeferredActivated, kNormed2, kDMid, kNormed1, kDeferredDQkv, kNormGradients, kHeadNormGradients };
/// Behind these: the attention's own work; under sequence parallelism reduced rows.
enum InputWork { kInputDNormed, kInputDAttended, kInputAttention };

}  // namespace trireme::model::block
