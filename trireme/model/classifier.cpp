#include "trireme/model/classifier.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/model/classifier_head.h"

namespace trireme::model {
namespace {

std::vector<at::Tensor> tensors_of(const Slots& slots) {
  std::vector<at::Tensor> tensors;
  for (const TensorSpec& slot : slots)
    tensors.push_back(slot.name.empty() ? at::Tensor() : at::empty(slot.shape, at::TensorOptions().dtype(slot.dtype)));
  return tensors;
}

}  // namespace

Classifier::Classifier(const ModelConfig& config, const Precision& precision, const FillWeights& fill)
    : model_(build_model(config, precision)), precision_(precision) {
  if (!config.is_classifier())
    throw UsageError("the model has no classification head; train one: trireme finetune_full FOLDER --task classify");
  weights_ = unit_weights(model_, 0, static_cast<int>(model_.units.size()), precision.compute, fill);
}

Classifier::Judged Classifier::judge(std::span<const Text> texts) const {
  const int64_t most = config().longest_sequence();
  BatchShape shape{.micro_batch = std::ssize(texts)};
  for (const Text& text : texts) shape.sequence = std::max(shape.sequence, std::ssize(text.tokens));
  if (std::ranges::any_of(texts, [](const Text& text) { return text.tokens.empty(); }) || shape.sequence > most)
    throw UsageError(fmt::format("a text to classify has 1 to {} tokens, the positions of the model", most));
  UnitTensors t;
  t.shape = shape;
  t.tokens = at::zeros({shape.tokens()}, at::kLong);
  t.targets = at::full({shape.tokens()}, -100, at::kLong);
  t.document_starts = at::zeros({shape.tokens()}, at::kLong);
  for (int64_t b = 0; b < shape.micro_batch; ++b) {
    const Text& text = texts[static_cast<size_t>(b)];
    std::ranges::copy(text.tokens, t.tokens.mutable_data_ptr<int64_t>() + b * shape.sequence);
    t.targets.mutable_data_ptr<int64_t>()[b * shape.sequence] = text.label;
    const int64_t end = std::ssize(text.tokens);
    if (end < shape.sequence) t.document_starts.narrow(0, b * shape.sequence + end, shape.sequence - end).fill_(end);
  }
  for (size_t u = 0; u < model_.units.size(); ++u) {
    const Unit& unit = *model_.units[u];
    const UnitValues values = unit.values(shape, precision_);
    t.parameters = weights_[u];
    t.saved = tensors_of(values.saved);
    t.work = tensors_of(values.forward_work);
    t.input = t.output;
    if (!values.output.shape.empty())
      t.output = at::empty(values.output.shape, at::TensorOptions().dtype(values.output.dtype));
    t.loss_sum = at::zeros({1 + std::ssize(unit.measures())}, at::kDouble);
    unit.forward(t);
  }
  const auto* sums = t.loss_sum.data_ptr<double>();
  return {ClassifierHead::logits(t), {sums, sums + t.loss_sum.numel()}};
}

}  // namespace trireme::model
