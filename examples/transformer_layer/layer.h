// A transformer layer whose matrices mesh.tp divides: attention by heads, the MLP by columns and then rows, as Megatron
// does. On one rank it is a plain pre-norm layer. With sequence parallelism, what lies between the products (norms,
// residuals) has 1/tp of the tokens on each rank.
#pragma once

#include <torch/nn.h>

#include "trireme/model/parallel_layers.h"
#include "trireme/model/wrap.h"

namespace parallel_example {

namespace nn = torch::nn;

struct TransformerLayerImpl : nn::Module {
  TransformerLayerImpl(const trireme::TensorRanksPtr& ranks, int64_t width, int64_t num_heads)
      : heads(ranks->share(num_heads, "attention heads")), head_width(width / num_heads) {
    norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({width})));
    // q, k and v: each is divided by itself, so a rank has all three of its heads.
    qkv = register_module(
        "qkv", trireme::ColumnParallelLinear(ranks, width, 3 * width, trireme::ColumnOptions{.matrices = 3}));
    out = register_module("out", trireme::RowParallelLinear(ranks, width, width));
    norm2 = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({width})));
    up = register_module("up", trireme::ColumnParallelLinear(ranks, width, 4 * width));
    down = register_module("down", trireme::RowParallelLinear(ranks, 4 * width, width));
  }

  // x [B,T,D]; with sequence parallelism [B,T/tp,D]
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor mid = x + out(attend(qkv(norm1(x))));
    return mid + down(torch::gelu(up(norm2(mid))));
  }

  torch::Tensor attend(const torch::Tensor& projected) const {  // [B,T,3 x this rank's heads x head_width]
    const auto parts = projected.unflatten(-1, {3, heads, head_width}).permute({2, 0, 3, 1, 4});
    return at::scaled_dot_product_attention(parts[0], parts[1], parts[2]).transpose(1, 2).flatten(2);
  }

  int64_t heads, head_width;
  nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  trireme::ColumnParallelLinear qkv{nullptr}, up{nullptr};
  trireme::RowParallelLinear out{nullptr}, down{nullptr};
};
TORCH_MODULE(TransformerLayer);

}  // namespace parallel_example
