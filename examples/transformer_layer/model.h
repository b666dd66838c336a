// Two transformer layers between an embedding and scores over the vocabulary, all divided over mesh.tp. The task: say
// each sequence backwards.
#pragma once

#include "layer.h"

namespace parallel_example {

constexpr int64_t kLetters = 24, kLength = 12, kWidth = 48, kHeads = 4;

struct TokensImpl : nn::Module {
  explicit TokensImpl(trireme::TensorRanksPtr r) : ranks(std::move(r)) {
    table = register_module("table", trireme::VocabParallelEmbedding(ranks, kLetters, kWidth));
    positions = register_parameter("positions", torch::randn({kLength, kWidth}));
  }
  // The table gives a rank its own rows of the sequence, so it adds its own rows of the positions.
  torch::Tensor forward(const torch::Tensor& ids) { return table(ids) + ranks->own_rows(positions); }
  trireme::TensorRanksPtr ranks;
  trireme::VocabParallelEmbedding table{nullptr};
  torch::Tensor positions;
};
TORCH_MODULE(Tokens);

struct ScoresImpl : nn::Module {
  explicit ScoresImpl(const trireme::TensorRanksPtr& ranks) {
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
    scores = register_module("scores", trireme::ColumnParallelLinear(ranks, kWidth, kLetters));
  }
  torch::Tensor forward(const torch::Tensor& x) { return scores(norm(x)); }  // [B,T,kLetters/tp]
  nn::LayerNorm norm{nullptr};
  trireme::ColumnParallelLinear scores{nullptr};
};
TORCH_MODULE(Scores);

/// The modules, which stay usable by themselves: Trainer::store() gives them their trained weights.
struct Backwards {
  explicit Backwards(const trireme::TensorRanksPtr& r)
      : ranks(r),
        tokens(r),
        layers{TransformerLayer(r, kWidth, kHeads), TransformerLayer(r, kWidth, kHeads)},
        scores(r) {}

  std::vector<trireme::Wrapped> parts() const {
    std::vector<trireme::Wrapped> all{trireme::wrap("tokens", tokens)};
    for (size_t i = 0; i < layers.size(); ++i) all.push_back(trireme::wrap("layer " + std::to_string(i), layers[i]));
    all.push_back(
        trireme::wrap_loss("scores", scores, [r = ranks](const torch::Tensor& s, const torch::Tensor& targets) {
          return trireme::vocab_parallel_cross_entropy(r, s, targets);
        }));
    return all;
  }

  /// [B,T] letters -> [B,T] letters
  torch::Tensor say(const torch::Tensor& ids) {
    torch::Tensor x = tokens(ids);
    for (TransformerLayer& layer : layers) x = layer(x);
    return ranks->gather(scores(x), -1).argmax(-1);
  }

  trireme::TensorRanksPtr ranks;
  Tokens tokens;
  std::vector<TransformerLayer> layers;
  Scores scores;
};

/// Micro-batch `number`: random letters, and the same backwards.
inline trireme::model::Example backwards_batch(int64_t number, int64_t sequences) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(number) + 1);
  const torch::Tensor ids = torch::randint(kLetters, {sequences, kLength}, generator, torch::kLong);
  return {ids, ids.flip(1).contiguous()};
}

}  // namespace parallel_example
