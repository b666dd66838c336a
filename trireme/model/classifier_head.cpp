#include "trireme/model/classifier_head.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/model/tensor_names.h"
#include "trireme/model/tensor_parallel.h"
#include "trireme/ops/elementwise/pool.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/storage.h"

namespace trireme::model {
namespace {

struct HeadSlot {
  enum Slot {
    rows,       ///< [T,D]: norm(x) of all rows; then its gradient
    rstd,       ///< of the norm
    mean,
    ranges,     ///< [B,2]: the rows that are pooled
    labels,     ///< [B]
    pooled,     ///< [B,D]
    activated,  ///< [B,D]: of the layer before
    logits,     ///< [B,C]; then their gradient
    sums,       ///< [3B]: of the softmax
    d_activated,
    norm_parts,  ///< sequence parallel: gradients of the norm from this rank's rows
  };
};

// Numbers behind the loss and the right ones.
constexpr int64_t kFirstCount = 2, kCountsOfLabel = 3;

// Calls body.operator()<T>(first logit, texts, labels).
template <class Body>
void with_logits(const at::Tensor& logits, const Body& body) {
  ops::with_storage(ops::storage_of(logits.scalar_type()), [&]<class T>() {
    body.template operator()<T>(static_cast<const T*>(logits.const_data_ptr()), logits.size(0), logits.size(1));
  });
}

}  // namespace

void check_classifier(const ModelConfig& c, const Precision& precision, const Parallel& parallel,
                      const Adapters& adapters) {
  if (!c.is_classifier() && !c.bidirectional) return;
  if (!c.is_classifier())
    throw UsageError(fmt::format(
        "models of type {} see later tokens, so they cannot learn to continue a text; to classify texts, give --task "
        "classify with labelled texts, or model.num_labels",
        model_type(c.architecture)));
  if (parallel.cp_size > 1)
    throw UsageError(
        fmt::format("mesh.cp={} divides sequences, and a classification head reads whole texts; use mesh.tp with "
                    "mesh.sequence_parallel for long texts, and mesh.cp 1",
                    parallel.cp_size));
  if (!adapters.empty())
    throw UsageError(
        "adapters (lora.*) are not built for classification; train all weights: trireme finetune_full FOLDER --task "
        "classify");
  if (precision.on_gpu)
    throw ProcessorsOnly("a model that classifies texts computes on processors only", "set accelerator cpu");
}

ClassifierHead::ClassifierHead(const ModelConfig& c, const Parallel& parallel) : config_(c), parallel_(parallel) {
  using Kind = Initializer::Kind;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, Kind kind, bool may_be_new) {
    const bool is_matrix = shape.size() > 1;
    parameters_.push_back({.name = name,
                           .shape = std::move(shape),
                           .init = {kind, kind == Kind::normal ? c.initializer_range : 0},
                           .decay = is_matrix,
                           .may_be_new = may_be_new,
                           .counted = parallel.tp_rank == 0});
    return static_cast<int>(parameters_.size()) - 1;
  };
  const TensorNames& names = tensor_names(c.architecture);
  if (c.final_norm) {
    const std::string norm = names.final_norm;
    norm_.weight = add(norm + ".weight", {c.hidden_size}, c.norm_offset == 0 ? Kind::ones : Kind::zeros, false);
    if (c.layer_norm) norm_.bias = add(norm + ".bias", {c.hidden_size}, Kind::zeros, false);
    norm_.offset = c.norm_offset;
  }
  if (c.classifier.pooler != ClassifierConfig::Pooler::none) {
    const std::string pooler = names.pooler;
    pooler_.weight = add(pooler + ".weight", {c.hidden_size, c.hidden_size}, Kind::normal, true);
    pooler_.bias = add(pooler + ".bias", {c.hidden_size}, Kind::zeros, true);
  }
  const std::string labels = names.classifier;
  labels_.weight = add(labels + ".weight", {c.classifier.num_labels, c.hidden_size}, Kind::normal, true);
  if (c.classifier.bias) labels_.bias = add(labels + ".bias", {c.classifier.num_labels}, Kind::zeros, true);
}

std::vector<Measure> ClassifierHead::measures() const {
  std::vector<Measure> measures = {{"right", 0}};
  for (const std::string& label : config_.classifier.labels)
    for (const char* of : {"have ", "get ", "have and get "}) measures.push_back({of + label, 0});
  return measures;
}

UnitValues ClassifierHead::values(const BatchShape& shape, const Precision& p) const {
  const LocalRows local = local_rows(parallel_, shape);
  const int64_t texts = shape.micro_batch, width = config_.hidden_size;
  UnitValues v;
  Slots& w = v.forward_work;
  w[HeadSlot::rows] = {"rows", {local.tokens, width}, p.compute};
  if (norm_.present()) w[HeadSlot::rstd] = {"rstd", {local.rows}, p.state};
  if (norm_.centered()) w[HeadSlot::mean] = {"mean", {local.rows}, p.state};
  w[HeadSlot::ranges] = {"ranges", {texts, 2}, at::kLong};
  w[HeadSlot::labels] = {"labels", {texts}, at::kLong};
  w[HeadSlot::pooled] = {"pooled", {texts, width}, p.compute};
  if (has_pooler()) w[HeadSlot::activated] = {"activated", {texts, width}, p.compute};
  w[HeadSlot::logits] = {"logits", {texts, config_.classifier.num_labels}, p.compute};
  w[HeadSlot::sums] = {"sums", {3 * texts}, p.state};
  v.backward_work = v.forward_work;
  if (has_pooler()) v.backward_work[HeadSlot::d_activated] = {"gradient of activated", {texts, width}, p.compute};
  if (norm_.present() && sequence_parallel())
    v.backward_work[HeadSlot::norm_parts] = {"norm gradients", {norm_.centered() ? 2 : 1, width}, p.state};
  return v;
}

const at::Tensor& ClassifierHead::logits(const UnitTensors& t) { return t.work[HeadSlot::logits]; }

// document_starts, targets -> ranges, labels
void ClassifierHead::find_texts(const UnitTensors& t) const {
  check_invariant(t.document_starts.defined(), "a classification head knows where texts end");
  const int64_t length = t.shape.sequence;
  const int64_t *starts = t.document_starts.data_ptr<int64_t>(), *targets = t.targets.data_ptr<int64_t>();
  auto* range = at::Tensor(t.work[HeadSlot::ranges]).mutable_data_ptr<int64_t>();
  auto* label = at::Tensor(t.work[HeadSlot::labels]).mutable_data_ptr<int64_t>();
  for (int64_t b = 0; b < t.shape.micro_batch; ++b) {
    const int64_t* const row = starts + b * length;
    const int64_t tokens = std::find_if(row, row + length, [](int64_t start) { return start > 0; }) - row;
    const Pooling pooling = config_.classifier.pooling;
    range[2 * b] = b * length + (pooling == Pooling::last ? tokens - 1 : 0);
    range[2 * b + 1] = b * length + (pooling == Pooling::cls ? 1 : tokens);
    label[b] = targets[b * length];
  }
}

// input -> logits
void ClassifierHead::read(const UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.ranks);
  const at::Tensor &rows = t.work[HeadSlot::rows], own = tp.own_rows(rows), &pooled = t.work[HeadSlot::pooled],
                   &logits = t.work[HeadSlot::logits];
  if (norm_.present())
    norm_forward(norm_, own, {norm_.centered() ? t.work[HeadSlot::mean] : at::Tensor(), t.work[HeadSlot::rstd]},
                 t.input, t.parameters, config_.norm_eps);
  else
    at::Tensor(own).copy_(t.input);
  tp.gather_in_place(rows);
  find_texts(t);
  ops::pool_forward(pooled, rows, t.work[HeadSlot::ranges]);
  at::Tensor x = pooled;
  if (has_pooler()) {
    x = t.work[HeadSlot::activated];
    product_forward(pooler_, t, x, pooled);
    product_bias(pooler_, x, t.parameters);
    if (config_.classifier.pooler == ClassifierConfig::Pooler::tanh)
      x.tanh_();
    else
      x.clamp_min_(0);
  }
  product_forward(labels_, t, logits, x);
  product_bias(labels_, logits, t.parameters);
}

// logits -> loss_sum
void ClassifierHead::judge(const UnitTensors& t) const {
  const int64_t texts = t.shape.micro_batch, labels = config_.classifier.num_labels;
  const at::Tensor &logits = t.work[HeadSlot::logits], &target = t.work[HeadSlot::labels],
                   &sums = t.work[HeadSlot::sums];
  const at::Tensor row_max = sums.narrow(0, 0, texts), sum_exp = sums.narrow(0, texts, texts),
                   target_logit = sums.narrow(0, 2 * texts, texts);
  at::Tensor(t.loss_sum).zero_();
  ops::cross_entropy_shard_max(row_max, logits, 0, labels);
  ops::cross_entropy_shard_sum(sum_exp, target_logit, logits, row_max, target, 0, labels);
  ops::cross_entropy_shard_loss(t.loss_sum.narrow(0, 0, 1), row_max, sum_exp, target_logit, target);
  count(t);
}

// logits -> what measures() names. Of equally likely labels the first counts.
void ClassifierHead::count(const UnitTensors& t) const {
  const int64_t* label = t.work[HeadSlot::labels].data_ptr<int64_t>();
  auto* sums = at::Tensor(t.loss_sum).mutable_data_ptr<double>();
  const auto add = [&](int64_t of, int64_t which) { sums[kFirstCount + kCountsOfLabel * of + which] += 1; };
  with_logits(t.work[HeadSlot::logits], [&]<class T>(const T* row, int64_t texts, int64_t labels) {
    for (int64_t b = 0; b < texts; ++b, row += labels) {
      if (label[b] < 0) continue;
      const int64_t likeliest =
          std::max_element(row, row + labels, [](T x, T y) { return ops::widen(x) < ops::widen(y); }) - row;
      add(label[b], 0);
      add(likeliest, 1);
      if (likeliest != label[b]) continue;
      sums[1] += 1;
      add(likeliest, 2);
    }
  });
}

void ClassifierHead::forward(UnitTensors& t) const {
  read(t);
  judge(t);
}

// The gradient of the pooled rows, in `pooled` -> that of the input, and the norm's.
void ClassifierHead::backward_rows(const UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.ranks);
  const at::Tensor& rows = t.work[HeadSlot::rows];
  ops::pool_backward(rows, t.work[HeadSlot::pooled], t.work[HeadSlot::ranges]);
  const at::Tensor own = tp.own_rows(rows);
  if (!norm_.present()) {
    at::Tensor(t.d_boundary).copy_(own);
    return;
  }
  const bool centered = norm_.centered(), in_parts = tp.sequence();
  const NormGradients direct{t.gradient(static_cast<size_t>(norm_.weight)),
                             centered ? t.gradient(static_cast<size_t>(norm_.bias)) : ops::Gradient()};
  const at::Tensor parts = in_parts ? t.work[HeadSlot::norm_parts] : at::Tensor();
  const NormGradients n =
      in_parts ? NormGradients{parts[0], centered ? ops::Gradient(parts[1]) : ops::Gradient()} : direct;
  norm_backward(norm_, t.d_boundary, n, own, own, t.input, t.parameters,
                {centered ? t.work[HeadSlot::mean] : at::Tensor(), t.work[HeadSlot::rstd]}, at::Tensor());
  if (!in_parts) return;
  tp.sum(parts);
  ops::write_gradient(direct.weight, parts[0]);
  if (centered) ops::write_gradient(direct.bias, parts[1]);
}

void ClassifierHead::backward(UnitTensors& t) const {
  read(t);
  judge(t);
  const int64_t texts = t.shape.micro_batch;
  const at::Tensor &logits = t.work[HeadSlot::logits], &pooled = t.work[HeadSlot::pooled],
                   &sums = t.work[HeadSlot::sums];
  ops::cross_entropy_shard_backward(logits, sums.narrow(0, 0, texts), sums.narrow(0, texts, texts),
                                    t.work[HeadSlot::labels], t.loss_scale, 0, config_.classifier.num_labels);
  if (has_pooler()) {
    const at::Tensor &x = t.work[HeadSlot::activated], &dx = t.work[HeadSlot::d_activated];
    product_backward_weight(labels_, t, logits, x);
    product_backward_input(labels_, t, dx, logits);
    at::Tensor d = dx;
    if (config_.classifier.pooler == ClassifierConfig::Pooler::tanh)
      at::tanh_backward_out(d, dx, x);
    else
      at::threshold_backward_out(d, dx, x, 0);
    product_backward_weight(pooler_, t, dx, pooled);
    product_backward_input(pooler_, t, pooled, dx);
  } else {
    product_backward_weight(labels_, t, logits, pooled);
    product_backward_input(labels_, t, pooled, logits);
  }
  backward_rows(t);
}

UnitTraffic ClassifierHead::traffic(const BatchShape& shape, const Precision& p) const {
  const TensorTraffic tp(parallel_);
  UnitTraffic u;
  tp.gather(u.forward, p.compute, local_rows(parallel_, shape).tokens * config_.hidden_size);
  u.backward = u.forward;
  if (norm_.present() && sequence_parallel())
    tp.sum(u.backward, p.state, (norm_.centered() ? 2 : 1) * config_.hidden_size);
  return u;
}

double ClassifierHead::forward_flops(const BatchShape& shape) const {
  const auto width = static_cast<double>(config_.hidden_size);
  return 2 * static_cast<double>(shape.micro_batch) * width *
         (static_cast<double>(config_.classifier.num_labels) + (has_pooler() ? width : 0));
}

UnitValues ClassifierHead::generation_values(const GenerationShape&, const Precision&) const {
  throw UsageError(
      "a model that classifies texts writes none; predict labels with trireme evaluate FOLDER --classify "
      "FILE.jsonl");
}

}  // namespace trireme::model
