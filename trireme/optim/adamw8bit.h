// AdamW whose moments have 8 bits: codes of the dynamic map (ops/blocks/codes.h), with a scale for every 256 elements
// of a tensor. Tensors below 4,096 elements keep float32, because they need few bytes and most of the accuracy.
//
// Each step widens a block's moments, updates them as AdamW does, and rounds them to codes again. Blocks are those of
// whole tensors, so a rank owns whole tensors (by_tensor.h), and the bits do not depend on the number of data ranks. A
// tensor-parallel rank keeps the blocks of its part, if its part is one of whole blocks.
//
// Source    Dettmers et al., 8-bit Optimizers via Block-wise Quantization (2021); bitsandbytes 0.50, on processors
#pragma once

#include <span>
#include <vector>

#include "trireme/optim/adafactor.h"
#include "trireme/optim/by_tensor.h"

namespace trireme::optim {

constexpr int64_t kStateBlock = 256, kSmallTensor = 4096;

/// What is kept of a tensor of this whole shape: bitsandbytes' names; codes are bytes.
std::vector<WholeState> adamw8bit_state(std::span<const int64_t> shape);

/// Whether a tensor-parallel rank's part begins or ends inside a block.
bool cuts_state_blocks(const model::ParameterSpec& parameter);

/// One step; `state` has one tensor [whole_state_elements()], float32, in whose memory the codes lie too.
/// Cost      reads and writes 2 bytes of state an element
/// Numerics  float32
void step_adamw8bit(const StepTensors& tensors, std::span<const DecaySegment> segments,
                    const OptimizerOptions& options);

}  // namespace trireme::optim
