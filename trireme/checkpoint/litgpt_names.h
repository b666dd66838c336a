// LitGPT's names and layout of weights (lit_model.pth), as maps to and from Hugging Face's: attention's q, k and v are
// one matrix, `attn.qkv` with rows q|k|v; older files have `attn.attn`, where each group of queries is followed by its
// key and its value. Everything else is a name.
// Source: LitGPT's scripts/convert_hf_checkpoint.py and convert_lit_checkpoint.py.
#pragma once

#include <vector>

#include "trireme/checkpoint/tensor_map.h"
#include "trireme/model/config.h"

namespace trireme::checkpoint {

/// What makes Hugging Face's tensors of `config` out of LitGPT's, in the order of `lit`. Where the config ties the
/// embeddings, lm_head.weight is left out.
///
/// Errors    CheckpointError naming a tensor that LitGPT does not have, or one of another shape than the config's
std::vector<MappedTensor> litgpt_to_hugging_face(const std::vector<SourceTensor>& lit,
                                                 const model::ModelConfig& config);

/// The other way, q|k|v fused where q stands in the order of `hugging_face`. A tied head becomes a tensor of its own,
/// as LitGPT has it.
///
/// Errors    CheckpointError naming a tensor that has no name in LitGPT, or q without k and v
std::vector<MappedTensor> hugging_face_to_litgpt(const std::vector<SourceTensor>& hugging_face,
                                                 const model::ModelConfig& config);

/// Are embedding and head of a LitGPT model equal, byte for byte? LitGPT stores both and has no setting that says so.
///
/// Cost      reads both
bool litgpt_head_is_tied(const TensorSource& lit);

}  // namespace trireme::checkpoint
