// A vision transformer: patches by convolution, a CLS token, learned positions, transformer layers, and scores of the
// CLS token. The layers are those of examples/transformer_layer, so mesh.tp divides them.
#pragma once

#include <cmath>

#include "../transformer_layer/layer.h"

namespace parallel_example {

struct VitOptions {
  int64_t height = 12, width = 20, patch = 4, channels = 3;  ///< 15 patches and CLS: 16 tokens, which tp 2 and 4 share
  int64_t features = 48, heads = 4, layers = 2, classes = 5;
  int64_t patches() const { return (height / patch) * (width / patch); }
};

struct PatchesImpl : nn::Module {
  PatchesImpl(trireme::TensorRanksPtr r, const VitOptions& o) : ranks(std::move(r)) {
    project =
        register_module("project", nn::Conv2d(nn::Conv2dOptions(o.channels, o.features, o.patch).stride(o.patch)));
    cls = register_parameter("cls", torch::randn({1, 1, o.features}) * 0.02);
    positions = register_parameter("positions", torch::randn({1 + o.patches(), o.features}) * 0.02);
  }
  // images [B,channels,H,W] -> [B,1+patches,features]: of those, the rank's own tokens under sequence parallelism
  torch::Tensor forward(const torch::Tensor& images) {
    const torch::Tensor patches = project(images).flatten(2).transpose(1, 2);
    return ranks->own_rows(torch::cat({cls.expand({images.size(0), 1, -1}), patches}, 1) + positions);
  }
  trireme::TensorRanksPtr ranks;
  nn::Conv2d project{nullptr};
  torch::Tensor cls, positions;
};
TORCH_MODULE(Patches);

struct ClassifierImpl : nn::Module {
  ClassifierImpl(trireme::TensorRanksPtr r, const VitOptions& o) : ranks(std::move(r)) {
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({o.features})));
    scores = register_module("scores", nn::Linear(o.features, o.classes));
  }
  torch::Tensor forward(const torch::Tensor& x) { return scores(norm(ranks->gather_rows(x).select(1, 0))); }
  trireme::TensorRanksPtr ranks;
  nn::LayerNorm norm{nullptr};
  nn::Linear scores{nullptr};
};
TORCH_MODULE(Classifier);

/// The modules, which stay usable by themselves: Trainer::store() gives them their trained weights.
struct Vit {
  explicit Vit(const trireme::TensorRanksPtr& ranks, const VitOptions& o = {})
      : patches(ranks, o), classifier(nullptr) {
    for (int64_t i = 0; i < o.layers; ++i) layers.emplace_back(ranks, o.features, o.heads);
    classifier = Classifier(ranks, o);
  }

  std::vector<trireme::Wrapped> parts() const {
    std::vector<trireme::Wrapped> all{trireme::wrap("patches", patches)};
    for (size_t i = 0; i < layers.size(); ++i) all.push_back(trireme::wrap("layer " + std::to_string(i), layers[i]));
    all.push_back(trireme::wrap_loss("classifier", classifier, [](const torch::Tensor& s, const torch::Tensor& labels) {
      const auto sum = nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum);
      return nn::functional::cross_entropy(s, labels, sum);
    }));
    return all;
  }

  /// [B,channels,H,W] images -> [B,classes]
  torch::Tensor scores(const torch::Tensor& images) {
    torch::Tensor x = patches(images);
    for (TransformerLayer& layer : layers) x = layer(x);
    return classifier(x);
  }

  Patches patches;
  std::vector<TransformerLayer> layers;
  Classifier classifier;
};

}  // namespace parallel_example
