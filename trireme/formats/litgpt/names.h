// Maps between LitGPT's names and layout of weights (lit_model.pth) and Hugging Face's. LitGPT stores q, k and v of
// attention as one matrix, `attn.qkv` with rows q|k|v. Older files have `attn.attn`, where the rows of each group of
// query heads are followed by those of its key head and its value head. All other tensors differ only in name.
// Source: LitGPT's scripts/convert_hf_checkpoint.py and convert_lit_checkpoint.py.
#pragma once

#include <vector>

#include "trireme/formats/tensor_map.h"
#include "trireme/model/config.h"

namespace trireme::formats {

/// The map from LitGPT's tensors to Hugging Face's, in the order of `lit`. If the config ties the embeddings,
/// lm_head.weight is left out.
///
/// Errors    CheckpointError naming a tensor that LitGPT does not have, or whose shape contradicts the config
std::vector<MappedTensor> litgpt_to_hugging_face(const std::vector<TensorSpec>& lit, const model::ModelConfig& config);

/// The map back, in the order of `hugging_face`, with the fused q|k|v in place of q. A tied head becomes a tensor of
/// its own, as in LitGPT.
///
/// Errors    CheckpointError naming a tensor that has no name in LitGPT, or q without k and v
std::vector<MappedTensor> hugging_face_to_litgpt(const std::vector<TensorSpec>& hugging_face,
                                                 const model::ModelConfig& config);

/// True if embedding and head of a LitGPT model are equal byte for byte. LitGPT has no setting for tied heads.
///
/// Cost      reads both
bool litgpt_head_is_tied(const TensorSource& lit);

}  // namespace trireme::formats
