// Three models in plain LibTorch, cut into parts: nothing in the modules knows that Trireme will train them.
#pragma once

#include <torch/nn.h>

#include <mutex>
#include <vector>

#include "trireme/model/wrap.h"

namespace own_model {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

/// Sums, because Trireme divides by the number of losses of the global batch.
inline torch::Tensor cross_entropy(const torch::Tensor& scores, const torch::Tensor& labels) {
  return F::cross_entropy(scores, labels, F::CrossEntropyFuncOptions().reduction(torch::kSum));
}

// ---- an MLP: layers of different widths -------------------------------------------------------------------------

inline std::vector<trireme::Wrapped> mlp() {
  const auto layer = [](int64_t in, int64_t out) { return nn::Sequential(nn::Linear(in, out), nn::Tanh()); };
  std::vector<trireme::Wrapped> parts;
  parts.push_back(trireme::wrap("layer 0", layer(6, 24)));
  parts.push_back(trireme::wrap("layer 1", layer(24, 10)));
  parts.push_back(trireme::wrap("layer 2", layer(10, 17)));
  parts.push_back(
      trireme::wrap_loss("head", nn::Linear(17, 2), [](const torch::Tensor& y, const torch::Tensor& target) {
        return F::mse_loss(y, target.to(y), F::MSELossFuncOptions().reduction(torch::kSum));
      }));
  return parts;
}

// ---- an encoder with mean pooling: [B, T] tokens to classes -----------------------------------------------------

struct EmbeddingImpl : nn::Module {
  EmbeddingImpl(int64_t vocabulary, int64_t length, int64_t width) {
    tokens = register_module("tokens", nn::Embedding(vocabulary, width));
    positions = register_parameter("positions", torch::randn({length, width}) * 0.1);
  }
  torch::Tensor forward(const torch::Tensor& ids) { return tokens(ids) + positions; }
  nn::Embedding tokens{nullptr};
  torch::Tensor positions;
};
TORCH_MODULE(Embedding);

struct EncoderLayerImpl : nn::Module {  // LibTorch's wants [T, B, D]
  EncoderLayerImpl(int64_t width, int64_t heads) {
    layer = register_module(
        "layer", nn::TransformerEncoderLayer(
                     nn::TransformerEncoderLayerOptions(width, heads).dim_feedforward(2 * width).dropout(0)));
  }
  torch::Tensor forward(const torch::Tensor& x) { return layer(x.transpose(0, 1)).transpose(0, 1); }
  nn::TransformerEncoderLayer layer{nullptr};
};
TORCH_MODULE(EncoderLayer);

struct PooledClassifierImpl : nn::Module {
  PooledClassifierImpl(int64_t width, int64_t classes) {
    scores = register_module("scores", nn::Linear(width, classes));
  }
  torch::Tensor forward(const torch::Tensor& x) { return scores(x.mean(1)); }
  nn::Linear scores{nullptr};
};
TORCH_MODULE(PooledClassifier);

inline std::vector<trireme::Wrapped> encoder() {
  std::vector<trireme::Wrapped> parts;
  parts.push_back(trireme::wrap("embedding", Embedding(31, 7, 12)));
  parts.push_back(trireme::wrap("layer 0", EncoderLayer(12, 3)));
  parts.push_back(trireme::wrap("layer 1", EncoderLayer(12, 3)));
  parts.push_back(trireme::wrap_loss("head", PooledClassifier(12, 5), cross_entropy));
  return parts;
}

// ---- a small vision transformer: [B, 3, 8, 8] images to classes --------------------------------------------------

struct PatchesImpl : nn::Module {
  PatchesImpl(int64_t patch, int64_t count, int64_t width) {
    project = register_module("project", nn::Conv2d(nn::Conv2dOptions(3, width, patch).stride(patch)));
    summary = register_parameter("summary", torch::zeros({1, 1, width}));
    positions = register_parameter("positions", torch::randn({1 + count, width}) * 0.1);
  }
  torch::Tensor forward(const torch::Tensor& images) {
    const torch::Tensor patches = project(images).flatten(2).transpose(1, 2);
    return torch::cat({summary.expand({images.size(0), 1, -1}), patches}, 1) + positions;
  }
  nn::Conv2d project{nullptr};
  torch::Tensor summary, positions;
};
TORCH_MODULE(Patches);

struct BlockImpl : nn::Module {
  BlockImpl(int64_t width, int64_t heads) : heads_(heads) {
    norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({width})));
    qkv = register_module("qkv", nn::Linear(width, 3 * width));
    out = register_module("out", nn::Linear(width, width));
    norm2 = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({width})));
    up = register_module("up", nn::Linear(width, 4 * width));
    down = register_module("down", nn::Linear(4 * width, width));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const int64_t b = x.size(0), t = x.size(1), d = x.size(2);
    const auto heads = qkv(norm1(x)).view({b, t, 3, heads_, d / heads_}).permute({2, 0, 3, 1, 4});
    const auto attended = at::scaled_dot_product_attention(heads[0], heads[1], heads[2]);
    const auto mid = x + out(attended.transpose(1, 2).reshape({b, t, d}));
    return mid + down(torch::gelu(up(norm2(mid))));
  }
  nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  nn::Linear qkv{nullptr}, out{nullptr}, up{nullptr}, down{nullptr};
  int64_t heads_;
};
TORCH_MODULE(Block);

struct SummaryClassifierImpl : nn::Module {
  SummaryClassifierImpl(int64_t width, int64_t classes) {
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width})));
    scores = register_module("scores", nn::Linear(width, classes));
  }
  torch::Tensor forward(const torch::Tensor& x) { return scores(norm(x.select(1, 0))); }
  nn::LayerNorm norm{nullptr};
  nn::Linear scores{nullptr};
};
TORCH_MODULE(SummaryClassifier);

inline std::vector<trireme::Wrapped> vision_transformer() {
  std::vector<trireme::Wrapped> parts;
  parts.push_back(trireme::wrap("patches", Patches(4, 4, 12)));
  parts.push_back(trireme::wrap("block 0", Block(12, 3)));
  parts.push_back(trireme::wrap("block 1", Block(12, 3)));
  parts.push_back(trireme::wrap_loss("head", SummaryClassifier(12, 5), cross_entropy));
  return parts;
}

// ---- synthetic data: the same micro-batch for a number, on any rank ----------------------------------------------

struct Task {
  const char* name;
  std::vector<trireme::Wrapped> (*parts)();
  trireme::model::Example (*batch)(int64_t number);
};

/// Numbers of a fixed sequence in (-1, 1), smooth enough to learn from.
inline torch::Tensor numbers(int64_t seed, torch::IntArrayRef shape) {
  int64_t count = 1;
  for (const int64_t s : shape) count *= s;
  return torch::sin(torch::arange(count, torch::kDouble) * 0.7 + double(seed) * 1.3).to(torch::kFloat).view(shape);
}

inline std::vector<Task> tasks() {
  return {
      {"mlp", mlp,
       [](int64_t n) -> trireme::model::Example {
         const torch::Tensor x = numbers(n, {8, 6});
         return {x, torch::stack({x.sum(1), x.select(1, 0) * x.select(1, 1)}, 1)};
       }},
      {"encoder", encoder,
       [](int64_t n) -> trireme::model::Example {
         const torch::Tensor ids = (torch::arange(28) * (n + 3) + n * n) % 31;
         return {ids.view({4, 7}), ids.view({4, 7}).sum(1) % 5};
       }},
      {"vision transformer", vision_transformer,
       [](int64_t n) -> trireme::model::Example { return {numbers(n, {4, 3, 8, 8}), (torch::arange(4) + n) % 5}; }},
  };
}

/// The modules with the initial values of one seed.
inline std::vector<trireme::Wrapped> make_parts(const Task& task) {
  torch::manual_seed(7);
  return task.parts();
}

/// As a model. Ranks that are threads share LibTorch's random generator: one builds at a time.
inline trireme::model::Model make_model(const Task& task, const trireme::model::Precision& precision = {}) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  return trireme::build_model(make_parts(task), task.batch(0), precision);
}

}  // namespace own_model
