#include "trireme/model/adapted_product.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "trireme/model/dropout.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/products/products.h"

namespace trireme::model {
namespace {

// add_product's scratch holds this many rows: a few that stay in the caches.
constexpr int64_t kWideRows = 64;

// Calls visit(adapter, inner) with each adapter's part [T, rank] of `flat` [T * sum of ranks].
template <class Visit>
void for_each_adapter(const Product& product, const at::Tensor& flat, int64_t tokens, const Visit& visit) {
  int64_t begin = 0;
  for (const PartAdapter& adapter : product.adapters) {
    const int64_t count = tokens * adapter.rank;
    visit(adapter, flat.narrow(0, begin, count).view({tokens, adapter.rank}));
    begin += count;
  }
}

ops::DropoutMask mask_of(const PartAdapter& adapter, const UnitTensors& t, const Parallel& parallel,
                         const AdapterBuffers& b) {
  if (adapter.dropout == 0 || !t.random.active) return {};
  dropout_keys(b.keys, t.random, adapter.module, t.shape, parallel);
  return {.p = adapter.dropout, .keys = b.keys, .first_column = adapter.first_input};
}

// dropout(x)
at::Tensor input_of(const PartAdapter& adapter, const UnitTensors& t, const Parallel& parallel, const AdapterBuffers& b,
                    const at::Tensor& x) {
  const ops::DropoutMask mask = mask_of(adapter, t, parallel, b);
  if (mask.p == 0) return x;
  at::Tensor dropped = b.dropped.narrow(0, 0, x.numel()).view(x.sizes());
  ops::dropout_forward(dropped, x, mask);
  return dropped;
}

void scale(const at::Tensor& x, double factor) {
  if (factor != 1) at::Tensor(x).mul_(factor);
}

}  // namespace

AdapterSpecs adapter_specs(std::initializer_list<const Product*> products, int64_t tokens, int64_t width,
                           const Precision& p) {
  int64_t ranks = 0;
  bool drops = false;
  for (const Product* product : products) {
    ranks = std::max(ranks, product->adapter_ranks());
    for (const PartAdapter& adapter : product->adapters) drops = drops || adapter.dropout > 0;
  }
  AdapterSpecs specs;
  if (ranks == 0) return specs;
  specs.inner = {"adapters' inner values", {tokens * ranks}, p.compute};
  specs.d_inner = {"gradients of adapters' inner values", {tokens * ranks}, p.compute};
  if (drops) specs.dropped = {"dropped", {tokens * width}, p.compute};
  if (drops) specs.keys = {"dropout keys", {tokens}, at::kInt};
  if (drops || p.compute == at::kBFloat16)
    specs.wide = {"adapters' products", {std::min(tokens, kWideRows) * width}, p.state};
  return specs;
}

void adapters_forward(const Product& product, const UnitTensors& t, const Parallel& parallel, const AdapterBuffers& b,
                      const at::Tensor& y, const at::Tensor& x) {
  if (product.adapters.empty()) return;
  adapters_inner(product, t, parallel, b, x);
  for_each_adapter(product, b.inner, x.size(0), [&](const PartAdapter& adapter, const at::Tensor& inner) {
    ops::add_product(y.narrow(1, adapter.begin, adapter.size), inner, t.parameters[adapter.b].t(), b.wide);
  });
}

void adapters_backward_input(const Product& product, const UnitTensors& t, const Parallel& parallel,
                             const AdapterBuffers& b, const at::Tensor& dx, const at::Tensor& dy) {
  for_each_adapter(product, b.d_inner, dy.size(0), [&](const PartAdapter& adapter, const at::Tensor& d_inner) {
    ops::multiply(d_inner, dy.narrow(1, adapter.begin, adapter.size), t.parameters[adapter.b]);
    scale(d_inner, adapter.scale);
    ops::add_product(dx, d_inner, t.parameters[adapter.a], b.wide, mask_of(adapter, t, parallel, b));
  });
}

void adapters_inner(const Product& product, const UnitTensors& t, const Parallel& parallel, const AdapterBuffers& b,
                    const at::Tensor& x) {
  for_each_adapter(product, b.inner, x.size(0), [&](const PartAdapter& adapter, const at::Tensor& inner) {
    ops::multiply(inner, input_of(adapter, t, parallel, b, x), t.parameters[adapter.a].t());
    scale(inner, adapter.scale);
  });
}

void adapters_backward_weight(const Product& product, const UnitTensors& t, const Parallel& parallel,
                              const AdapterBuffers& b, const at::Tensor& dy, const at::Tensor& x,
                              const AdapterParts& places, const at::Tensor& parts) {
  const auto write = [&](int index, const at::Tensor& left, const at::Tensor& right) {
    const at::Tensor part = places.of(parts, index, t.gradients[index]);
    const ops::Gradient gradient = part.defined() ? ops::Gradient(part) : t.gradient(index);
    ops::multiply(gradient.to, left.t(), right, gradient.accumulate);
  };
  int64_t begin = 0;
  for (const PartAdapter& adapter : product.adapters) {
    const int64_t count = x.size(0) * adapter.rank;
    const auto of = [&](const at::Tensor& flat) {
      return flat.narrow(0, begin, count).view({x.size(0), adapter.rank});
    };
    write(adapter.b, dy.narrow(1, adapter.begin, adapter.size), of(b.inner));
    write(adapter.a, of(b.d_inner), input_of(adapter, t, parallel, b, x));
    begin += count;
  }
}

AdapterParts::AdapterParts(std::initializer_list<const Product*> products,
                           const std::vector<ParameterSpec>& parameters) {
  const auto add = [&](int index) {
    const int64_t numel = parameters[static_cast<size_t>(index)].numel();
    places_.push_back({index, size_, numel});
    size_ += numel;
  };
  for (const Product* product : products)
    for (const PartAdapter& adapter : product->adapters) {
      if (adapter.sums_a) add(adapter.a);
      if (adapter.sums_b) add(adapter.b);
    }
}

at::Tensor AdapterParts::of(const at::Tensor& parts, int index, const at::Tensor& like) const {
  const auto place = std::ranges::find(places_, index, &Place::index);
  if (place == places_.end()) return {};
  return parts.narrow(0, place->begin, place->numel).view(like.sizes());
}

void AdapterParts::write(const UnitTensors& t, const TensorParallel& tp, const at::Tensor& parts) const {
  if (size_ == 0) return;
  tp.sum(parts);
  for (const Place& place : places_)
    ops::write_gradient(t.gradient(static_cast<size_t>(place.index)),
                        of(parts, place.index, t.gradients[static_cast<size_t>(place.index)]));
}

}  // namespace trireme::model
