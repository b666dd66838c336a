#include "trireme/model/adapted_product.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "trireme/model/dropout.h"
#include "trireme/ops/blocks/squares.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/products/products.h"

namespace trireme::model {
namespace {

// add_product's scratch holds this many rows, a few that stay in the caches; of a vocabulary's logits fewer.
constexpr int64_t kWideRows = 64, kWideElements = 4 << 20;

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

bool drops(const PartAdapter& adapter, const UnitTensors& t) { return adapter.dropout > 0 && t.random.active; }

/// Whether the ranks divide the inputs of a product whose outputs have magnitudes.
bool sums_squares(const Product& product) {
  return std::any_of(product.adapters.begin(), product.adapters.end(),
                     [](const PartAdapter& adapter) { return adapter.magnitude >= 0 && adapter.sums_b; });
}

ops::DropoutMask mask_of(const PartAdapter& adapter, const UnitTensors& t, const Parallel& parallel,
                         const AdapterBuffers& b, int64_t rows) {
  if (!drops(adapter, t)) return {};
  dropout_keys(b.keys, t.random, adapter.module, t.shape, parallel);
  return {.p = adapter.dropout, .keys = b.keys.narrow(0, b.first_row, rows), .first_column = adapter.first_input};
}

// dropout(x)
at::Tensor input_of(const PartAdapter& adapter, const UnitTensors& t, const Parallel& parallel, const AdapterBuffers& b,
                    const at::Tensor& x) {
  const ops::DropoutMask mask = mask_of(adapter, t, parallel, b, x.size(0));
  if (mask.p == 0) return x;
  at::Tensor dropped = b.dropped.narrow(0, 0, x.numel()).view(x.sizes());
  ops::dropout_forward(dropped, x, mask);
  return dropped;
}

void scale(const at::Tensor& x, double factor) {
  if (factor != 1) at::Tensor(x).mul_(factor);
}

at::Tensor rows_of(const at::Tensor& flat, int64_t rows, int64_t width) {
  return flat.narrow(0, 0, rows * width).view({rows, width});
}

void compute_inner(const Product& product, const UnitTensors& t, const Parallel& parallel, const AdapterBuffers& b,
                   const at::Tensor& x) {
  for_each_adapter(product, b.inner, x.size(0), [&](const PartAdapter& adapter, const at::Tensor& inner) {
    ops::multiply(inner, input_of(adapter, t, parallel, b, x), t.parameters[adapter.a].t());
    scale(inner, adapter.scale);
  });
}

// ---- magnitudes (DoRA) ----

bool has_magnitudes(const Product& product) { return product.magnitudes() > 0; }

/// The three vectors [size] of one adapter with magnitudes.
struct MagnitudeRow {
  at::Tensor norm, factor, gradient;
};
MagnitudeRow row_of(const Product& product, const PartAdapter& adapter, const AdapterBuffers& b) {
  int64_t begin = 0;
  for (const PartAdapter& before : product.adapters) {
    if (&before == &adapter) break;
    if (before.magnitude >= 0) begin += before.size;
  }
  const int64_t all = product.magnitudes();
  const auto vector = [&](int64_t number) { return b.magnitudes.narrow(0, number * all + begin, adapter.size); };
  return {vector(0), vector(1), vector(2)};
}

// Norms and factors of all adapters with magnitudes.
void compute_factors(const Product& product, const UnitTensors& t, const Parallel& parallel, const AdapterBuffers& b) {
  if (!has_magnitudes(product)) return;
  const at::Tensor norms = b.magnitudes.narrow(0, 0, product.magnitudes());
  for (const PartAdapter& adapter : product.adapters)
    if (adapter.magnitude >= 0 && !product.quantized.empty())
      ops::merged_squares(row_of(product, adapter, b).norm,
                          part_in_blocks(product, adapter.weight, t.parameters).matrix(), t.parameters[adapter.b],
                          t.parameters[adapter.a], adapter.scale, b.wide);
    else if (adapter.magnitude >= 0)
      ops::merged_squares(row_of(product, adapter, b).norm, t.parameters[adapter.weight], t.parameters[adapter.b],
                          t.parameters[adapter.a], adapter.scale, product.in_out, b.wide);
  if (sums_squares(product)) TensorParallel(parallel, t.ranks).sum(norms);
  at::Tensor(norms).sqrt_().masked_fill_(norms.eq(0), 1);  // as merging; such an output is 0
  for (const PartAdapter& adapter : product.adapters) {
    if (adapter.magnitude < 0) continue;
    const MagnitudeRow row = row_of(product, adapter, b);
    at::Tensor(row.factor).copy_(t.parameters[adapter.magnitude]).div_(row.norm);
  }
}

/// y = x W^T of the adapter's part.
void part_forward(const Product& product, const PartAdapter& adapter, const UnitTensors& t, const at::Tensor& y,
                  const at::Tensor& x) {
  if (!product.quantized.empty())
    return ops::multiply_blocks(y, x, part_in_blocks(product, adapter.weight, t.parameters).matrix(), true);
  const at::Tensor& w = t.parameters[adapter.weight];
  ops::multiply(y, x, product.in_out ? w : w.t());
}

// y_part holds W x.
void magnitude_forward(const Product& product, const PartAdapter& adapter, const UnitTensors& t,
                       const Parallel& parallel, const AdapterBuffers& b, const at::Tensor& y_part, const at::Tensor& x,
                       const at::Tensor& inner) {
  const at::Tensor factor = row_of(product, adapter, b).factor, b_weight = t.parameters[adapter.b].t();
  if (!drops(adapter, t)) {
    ops::add_product(y_part, inner, b_weight, b.wide);
    return ops::scale_columns(y_part, y_part, factor);
  }
  const at::Tensor part = rows_of(b.scaled, x.size(0), adapter.size);
  part_forward(product, adapter, t, part, input_of(adapter, t, parallel, b, x));
  ops::scale_columns(y_part, part, factor, -1, true);
  ops::multiply(part, inner, b_weight);
  ops::scale_columns(y_part, part, factor, 0, true);
}

// dx += what comes through (factor - 1) W dropout(x). dy_part is overwritten.
void dropped_backward(const Product& product, const PartAdapter& adapter, const UnitTensors& t,
                      const Parallel& parallel, const AdapterBuffers& b, const at::Tensor& dx,
                      const at::Tensor& dy_part) {
  ops::scale_columns(dy_part, dy_part, row_of(product, adapter, b).factor, -1);
  const at::Tensor d_dropped = rows_of(b.dropped, dx.size(0), dx.size(1));
  if (product.quantized.empty()) {
    const at::Tensor& w = t.parameters[adapter.weight];
    ops::multiply(d_dropped, dy_part, product.in_out ? w.t() : w);
  } else {
    ops::multiply_blocks(d_dropped, dy_part, part_in_blocks(product, adapter.weight, t.parameters).matrix(), false);
  }
  ops::dropout_forward(d_dropped, d_dropped, mask_of(adapter, t, parallel, b, dx.size(0)));
  ops::add_forward(dx, dx, d_dropped);
}

// The sum over rows of dy * (W dropout(x) + inner B^T), over the norm.
void magnitude_gradient(const Product& product, const PartAdapter& adapter, const UnitTensors& t,
                        const Parallel& parallel, const AdapterBuffers& b, const at::Tensor& dy_part,
                        const at::Tensor& x, const at::Tensor& inner) {
  const MagnitudeRow row = row_of(product, adapter, b);
  at::Tensor part = rows_of(b.scaled, x.size(0), adapter.size);
  part_forward(product, adapter, t, part, input_of(adapter, t, parallel, b, x));
  ops::add_product(part, inner, t.parameters[adapter.b].t(), b.wide);
  part.mul_(dy_part);
  ops::bias_backward(row.gradient, part);
  at::Tensor(row.gradient).div_(row.norm);
}

}  // namespace

AdapterSpecs adapter_specs(std::initializer_list<const Product*> products, const ProductSizes& sizes,
                           const Precision& p) {
  const int64_t rows = sizes.rows, widest = std::max(sizes.in, sizes.out);
  int64_t ranks = 0, magnitudes = 0, gradient = 0;
  bool drops = false, biases = false;
  for (const Product* product : products) {
    ranks = std::max(ranks, product->adapter_ranks());
    magnitudes = std::max(magnitudes, product->magnitudes());
    for (const PartAdapter& adapter : product->adapters) {
      drops = drops || adapter.dropout > 0;
      biases = biases || adapter.bias >= 0;
      if (adapter.magnitude >= 0) gradient = std::max(gradient, adapter.size * adapter.rank);
    }
  }
  AdapterSpecs specs;
  if (ranks == 0) return specs;
  specs.inner = {"adapters' inner values", {rows * ranks}, p.compute};
  specs.d_inner = {"gradients of adapters' inner values", {rows * ranks}, p.compute};
  if (drops) specs.dropped = {"dropped", {rows * sizes.in}, p.compute};
  if (drops) specs.keys = {"dropout keys", {sizes.tokens}, at::kInt};
  if (drops || magnitudes > 0 || ops::is_narrow(p.compute))
    specs.wide = {
        "adapters' products", {std::max(widest, std::min(std::min(rows, kWideRows) * widest, kWideElements))}, p.state};
  if (magnitudes > 0) specs.scaled = {"scaled", {rows * sizes.out}, p.compute};
  if (magnitudes > 0) specs.magnitudes = {"adapters' magnitudes", {3 * magnitudes}, p.state};
  if (biases) gradient = std::max(gradient, sizes.out);
  if (gradient > 0) specs.gradient = {"an adapter's gradient", {gradient}, p.state};
  if (biases) specs.bias = {"adapters' biases", {sizes.out}, p.compute};
  return specs;
}

void adapters_forward(const Product& product, const UnitTensors& t, const Parallel& parallel, const AdapterBuffers& b,
                      const at::Tensor& y, const at::Tensor& x) {
  if (product.adapters.empty()) return;
  compute_inner(product, t, parallel, b, x);
  compute_factors(product, t, parallel, b);
  for_each_adapter(product, b.inner, x.size(0), [&](const PartAdapter& adapter, const at::Tensor& inner) {
    const at::Tensor y_part = y.narrow(1, adapter.begin, adapter.size);
    if (adapter.magnitude >= 0)
      magnitude_forward(product, adapter, t, parallel, b, y_part, x, inner);
    else
      ops::add_product(y_part, inner, t.parameters[adapter.b].t(), b.wide);
  });
}

void adapters_bias(const Product& product, const UnitTensors& t, const AdapterBuffers& b, const at::Tensor& y) {
  const auto has_bias = [](const PartAdapter& adapter) { return adapter.bias >= 0; };
  if (std::none_of(product.adapters.begin(), product.adapters.end(), has_bias)) return;
  at::Tensor bias = b.bias.narrow(0, 0, y.size(1));
  bias.zero_();
  for (const PartAdapter& adapter : product.adapters)
    if (has_bias(adapter))
      bias.narrow(0, adapter.begin, adapter.size).copy_(t.parameters[adapter.bias]).mul_(adapter.scale);
  ops::bias_forward(y, bias);
}

void adapted_backward_input(const Product& product, const UnitTensors& t, const Parallel& parallel,
                            const AdapterBuffers& b, const at::Tensor& dx, const at::Tensor& dy) {
  const auto part_of = [](const at::Tensor& rows, const PartAdapter& adapter) {
    return rows.narrow(1, adapter.begin, adapter.size);
  };
  compute_factors(product, t, parallel, b);
  at::Tensor scaled;  // dy, times the factors of what is not dropped
  if (has_magnitudes(product)) {
    scaled = rows_of(b.scaled, dy.size(0), dy.size(1)).copy_(dy);
    for (const PartAdapter& adapter : product.adapters)
      if (adapter.magnitude >= 0 && !drops(adapter, t))
        ops::scale_columns(part_of(scaled, adapter), part_of(scaled, adapter), row_of(product, adapter, b).factor);
  }
  product_backward_input(product, t, dx, scaled.defined() ? scaled : dy);
  for_each_adapter(product, b.d_inner, dy.size(0), [&](const PartAdapter& adapter, const at::Tensor& d_inner) {
    at::Tensor dy_part = part_of(dy, adapter);
    if (adapter.magnitude >= 0) {
      const at::Tensor scaled_part = part_of(scaled, adapter);
      if (drops(adapter, t)) {
        dropped_backward(product, adapter, t, parallel, b, dx, scaled_part);
        ops::scale_columns(scaled_part, dy_part, row_of(product, adapter, b).factor);
      }
      dy_part = scaled_part;
    }
    ops::multiply(d_inner, dy_part, t.parameters[adapter.b]);
    scale(d_inner, adapter.scale);
    ops::add_product(dx, d_inner, t.parameters[adapter.a], b.wide, mask_of(adapter, t, parallel, b, dx.size(0)));
  });
}

void adapters_before_weight(const Product& product, const UnitTensors& t, const Parallel& parallel,
                            const AdapterBuffers& b, const at::Tensor& dy, const at::Tensor& x) {
  compute_inner(product, t, parallel, b, x);
  for_each_adapter(product, b.inner, x.size(0), [&](const PartAdapter& adapter, const at::Tensor& inner) {
    if (adapter.magnitude >= 0)
      magnitude_gradient(product, adapter, t, parallel, b, dy.narrow(1, adapter.begin, adapter.size), x, inner);
  });
}

void magnitude_traffic(const Product& product, const TensorTraffic& tp, std::vector<TrafficRow>& rows,
                       const Precision& precision) {
  if (sums_squares(product)) tp.sum(rows, precision.state, product.magnitudes());
}

void adapters_backward_weight(const Product& product, const UnitTensors& t, const Parallel& parallel,
                              const AdapterBuffers& b, const at::Tensor& dy, const at::Tensor& x,
                              const AdapterParts& places, const at::Tensor& parts) {
  const auto place_of = [&](int index) -> ops::Gradient {
    const at::Tensor part = places.of(parts, index, t.gradients[index]);
    return part.defined() ? ops::Gradient(part) : t.gradient(index);
  };
  const auto write = [&](int index, const at::Tensor& left, const at::Tensor& right) {
    const ops::Gradient gradient = place_of(index);
    ops::multiply(gradient.to, left.t(), right, gradient.accumulate);
  };
  // The rows of the gradient of B are scaled like the outputs.
  const auto write_scaled = [&](const PartAdapter& adapter, const at::Tensor& dy_part, const at::Tensor& inner) {
    const MagnitudeRow row = row_of(product, adapter, b);
    at::Tensor gradient = rows_of(b.gradient, adapter.size, adapter.rank);
    ops::multiply(gradient, dy_part.t(), inner);
    ops::write_gradient(place_of(adapter.b), gradient.mul_(row.factor.unsqueeze(1)));
    ops::write_gradient(place_of(adapter.magnitude), row.gradient);
  };
  int64_t begin = 0;
  for (const PartAdapter& adapter : product.adapters) {
    const int64_t count = x.size(0) * adapter.rank;
    const auto of = [&](const at::Tensor& flat) {
      return flat.narrow(0, begin, count).view({x.size(0), adapter.rank});
    };
    const at::Tensor dy_part = dy.narrow(1, adapter.begin, adapter.size);
    if (adapter.magnitude >= 0)
      write_scaled(adapter, dy_part, of(b.inner));
    else
      write(adapter.b, dy_part, of(b.inner));
    write(adapter.a, of(b.d_inner), input_of(adapter, t, parallel, b, x));
    if (adapter.bias >= 0) {
      const at::Tensor sums = b.gradient.narrow(0, 0, dy.size(1));
      ops::bias_backward(sums, dy);
      ops::write_gradient(t.gradient(adapter.bias), sums.narrow(0, adapter.begin, adapter.size).mul_(adapter.scale));
    }
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
      if (adapter.sums_b && adapter.magnitude >= 0) add(adapter.magnitude);
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
