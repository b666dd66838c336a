// The functions behind the table of CUDA kernels (cuda_kernels.h says what each does).
#pragma once

#include "trireme/ops/cuda_kernels.h"

namespace trireme::ops::cuda {

void gated_forward(const GatedArguments& arguments, int64_t rows);
void gated_backward(const GatedArguments& arguments, int64_t rows);
void gelu_forward(const GeluArguments& arguments, int64_t rows);
void gelu_backward(const GeluArguments& arguments, int64_t rows);
void softcap(const SoftcapArguments& arguments, int64_t rows);
void rms_norm_forward(const NormForward& arguments, int64_t rows);
void layer_norm_forward(const NormForward& arguments, int64_t rows);
void rms_norm_backward(const NormBackward& arguments, int64_t rows, const CudaGradient& dw);
void layer_norm_backward(const NormBackward& arguments, int64_t rows, const CudaGradient& dw, const CudaGradient& db);
void head_norm_forward(const HeadNorm& arguments, int64_t rows);
void head_norm_backward(const HeadNorm& arguments, int64_t rows, const CudaGradient& dw_q, const CudaGradient& dw_k);
void add(const AddArguments& arguments, int64_t rows);
void column_sum(const ColumnSum& arguments, int64_t rows, const CudaGradient& to);
void rotary(const RotaryArguments& arguments, int64_t rows);
void gather(const Gather& arguments, int64_t rows);
void gather_sum(const CudaGatherSum& arguments);
void softmax_loss(const SoftmaxLoss& arguments, int64_t rows, double* loss_sum);
void shard_max(const VocabularyShard& arguments, int64_t rows);
void shard_sum(const VocabularyShard& arguments, int64_t rows);
void shard_gradient(const VocabularyShard& arguments, int64_t rows);
void shard_loss(const CudaShardLoss& arguments, int64_t rows);
void multiply(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate);
void attention_forward(const AttentionCall& call, AttentionDtype dtype);
void attention_backward(const AttentionCall& call, AttentionDtype dtype);
void allow_flash_attention(bool allowed);

}  // namespace trireme::ops::cuda
