// The head's adapter, on the chunks of rows in which the head computes: what it needs, and its gradients.
#include <ATen/ATen.h>

#include "trireme/model/adapter_parameters.h"
#include "trireme/model/head.h"
#include "trireme/model/head_values.h"
#include "trireme/ops/ops.h"

namespace trireme::model {
namespace {

at::Tensor slot_of(const UnitTensors& t, int slot) {
  return slot < static_cast<int>(t.work.size()) ? t.work[static_cast<size_t>(slot)] : at::Tensor();
}

}  // namespace

void HeadUnit::declare_adapter(UnitValues& v, int64_t tokens, int64_t rows, const Precision& p) const {
  const int64_t width = config_.hidden_size, vocabulary = parameters_[static_cast<size_t>(product_.weight)].shape[0];
  const AdapterSpecs specs =
      adapter_specs({&product_}, {.rows = rows, .in = width, .out = vocabulary, .tokens = tokens}, p);
  for (Slots* work : {&v.forward_work, &v.backward_work}) {
    (*work)[HeadWork::inner] = specs.inner;
    (*work)[HeadWork::dropped] = specs.dropped;
    (*work)[HeadWork::wide] = specs.wide;
    (*work)[HeadWork::keys] = specs.keys;
    (*work)[HeadWork::scaled] = specs.scaled;
    (*work)[HeadWork::magnitudes] = specs.magnitudes;
    (*work)[HeadWork::adapter_bias] = specs.bias;
  }
  int64_t parameters = 0;
  for (const int index : parameters_of(product_.adapters.front()))
    parameters += parameters_[static_cast<size_t>(index)].numel();
  v.backward_work[HeadWork::d_chunk] = {"gradient of a chunk", {rows, width}, p.compute};
  v.backward_work[HeadWork::adapter_sums] = {"adapter's gradients", {parameters}, p.state};
  v.backward_work[HeadWork::d_inner] = specs.d_inner;
  v.backward_work[HeadWork::adapter_gradient] = specs.gradient;
}

AdapterBuffers HeadUnit::adapter_buffers(const UnitTensors& t, int64_t first_row) const {
  return {.inner = slot_of(t, HeadWork::inner),
          .d_inner = slot_of(t, HeadWork::d_inner),
          .dropped = slot_of(t, HeadWork::dropped),
          .wide = slot_of(t, HeadWork::wide),
          .keys = slot_of(t, HeadWork::keys),
          .first_row = first_row,
          .scaled = slot_of(t, HeadWork::scaled),
          .magnitudes = slot_of(t, HeadWork::magnitudes),
          .gradient = slot_of(t, HeadWork::adapter_gradient),
          .bias = slot_of(t, HeadWork::adapter_bias)};
}

UnitTensors HeadUnit::adapter_sums(const UnitTensors& t) const {
  if (!has_adapter()) return {};
  UnitTensors sums = t;
  const at::Tensor flat = at::Tensor(t.work[HeadWork::adapter_sums]).zero_();
  sums.accumulate.resize(sums.gradients.size());
  int64_t begin = 0;
  for (const int number : parameters_of(product_.adapters.front())) {
    const auto index = static_cast<size_t>(number);
    const int64_t numel = parameters_[index].numel();
    sums.gradients[index] = flat.narrow(0, begin, numel).view(parameters_[index].shape);
    sums.accumulate[index] = true;
    begin += numel;
  }
  return sums;
}

// The gradients of the logits' columns that this rank has. A has all columns' part on every rank.
void HeadUnit::write_adapter(UnitTensors& t, const Gradients& g) const {
  if (!has_adapter()) return;
  const PartAdapter& adapter = product_.adapters.front();
  TensorParallel(parallel_, t.ranks).sum(g.adapter.gradients[static_cast<size_t>(adapter.a)]);
  for (const int number : parameters_of(adapter)) {
    const auto index = static_cast<size_t>(number);
    ops::write_gradient(t.gradient(index), g.adapter.gradients[index]);
  }
}

// Weights first: the gradient of x takes the place of x.
void HeadUnit::chunk_backward(UnitTensors& t, const Gradients& g, int64_t first, const at::Tensor& x,
                              const at::Tensor& d_logits) const {
  const at::Tensor dx = g.dx.narrow(0, first, x.size(0));
  if (!has_adapter()) return product_backward_input(product_, t, dx, d_logits);
  const AdapterBuffers b = adapter_buffers(t, first);
  const at::Tensor apart = t.work[HeadWork::d_chunk].narrow(0, 0, x.size(0));
  adapted_backward_input(product_, t, parallel_, b, apart, d_logits);
  adapters_before_weight(product_, t, parallel_, b, d_logits, x);
  adapters_backward_weight(product_, g.adapter, parallel_, b, d_logits, x, {}, {});
  at::Tensor(dx).copy_(apart);
}

}  // namespace trireme::model
