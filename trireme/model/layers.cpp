#include "trireme/model/layers.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "trireme/ops/ops.h"
#include "trireme/ops/products/float8.h"
#include "trireme/ops/products/products.h"

namespace trireme::model {
at::Tensor joined(const Tensors& tensors, int first, int parts) {
  if (parts == 1) return tensors[first];
  std::vector<int64_t> shape = tensors[first].sizes().vec();
  for (int i = 1; i < parts; ++i) shape[0] += tensors[first + i].size(0);
  return at::from_blob(tensors[first].data_ptr(), shape, tensors[first].options());
}

namespace {

/// The parts of a matrix in blocks, as one.
ops::BlockRecords records_of(const Product& product, const Tensors& tensors) {
  ops::BlockRecords records;
  for (size_t i = 0; i < product.quantized.size(); ++i)
    records.add(product.quantized[i],
                static_cast<const uint8_t*>(tensors[static_cast<size_t>(product.weight) + i].const_data_ptr()));
  return records;
}

at::Tensor matrix_of(const Product& product, const Tensors& tensors) {
  return joined(tensors, product.weight, product.parts);
}

}  // namespace

ops::BlockRecords part_in_blocks(const Product& product, int weight, const Tensors& parameters) {
  ops::BlockRecords records;
  records.add(product.quantized[static_cast<size_t>(weight - product.weight)],
              static_cast<const uint8_t*>(parameters[static_cast<size_t>(weight)].const_data_ptr()));
  return records;
}

int64_t Product::adapter_ranks() const {
  int64_t sum = 0;
  for (const PartAdapter& adapter : adapters) sum += adapter.rank;
  return sum;
}

int64_t Product::magnitudes() const {
  int64_t sum = 0;
  for (const PartAdapter& adapter : adapters)
    if (adapter.magnitude >= 0) sum += adapter.size;
  return sum;
}

void norm_forward(const Norm& norm, const at::Tensor& y, const NormStatistics& s, const at::Tensor& x, const Tensors& p,
                  double eps) {
  if (norm.centered())
    ops::layer_norm_forward(y, s.mean, s.rstd, x, p[norm.weight], p[norm.bias], eps);
  else
    ops::rms_norm_forward(y, s.rstd, x, p[norm.weight], eps, norm.offset);
}

void add_norm_forward(const Norm& norm, const at::Tensor& sum, const at::Tensor& y, const NormStatistics& s,
                      const at::Tensor& x, const at::Tensor& residual, const Tensors& p, double eps) {
  if (norm.centered())
    ops::add_layer_norm_forward(sum, y, s.mean, s.rstd, x, residual, p[norm.weight], p[norm.bias], eps);
  else
    ops::add_rms_norm_forward(sum, y, s.rstd, x, residual, p[norm.weight], eps, norm.offset);
}

void norm_backward(const Norm& norm, const at::Tensor& dx, const NormGradients& g, const at::Tensor& y,
                   const at::Tensor& dy, const at::Tensor& x, const Tensors& p, const NormStatistics& s,
                   const at::Tensor& d_residual) {
  if (norm.centered())
    ops::layer_norm_backward(dx, g.weight, g.bias, y, dy, x, p[norm.weight], p[norm.bias], s.mean, s.rstd, d_residual);
  else
    ops::rms_norm_backward(dx, g.weight, y, dy, x, p[norm.weight], s.rstd, d_residual, norm.offset);
}

void pack(ParameterSpec& p, bool in_out, c10::ScalarType dtype) {
  p.packed = {.n = p.shape[in_out ? 1 : 0], .k = p.shape[in_out ? 0 : 1], .dtype = dtype, .in_out = in_out};
  if (p.is_quantized() && ops::packs_blocks(p.quantized)) p.packed->blocks = p.quantized.format;
}

namespace {

ops::PackedMatrix packed_matrix(const ParameterSpec::Packed& packed, const at::Tensor& record) {
  return {.bytes = record, .n = packed.n, .k = packed.k, .dtype = packed.dtype};
}

ops::PackedBlocks packed_blocks(const ParameterSpec::Packed& packed, const at::Tensor& record) {
  return {.bytes = record, .n = packed.n, .k = packed.k, .dtype = packed.dtype, .format = packed.blocks};
}

void multiply_packed(const ParameterSpec::Packed& packed, const at::Tensor& y, const at::Tensor& x,
                     const at::Tensor& record) {
  if (packed.blocks == base::BlockFormat::none)
    ops::multiply_packed(y, x, packed_matrix(packed, record));
  else
    ops::multiply_packed(y, x, packed_blocks(packed, record));
}

}  // namespace

void write_packed(const ParameterSpec& p, const at::Tensor& record, const at::Tensor& values) {
  ops::pack(packed_matrix(*p.packed, record), p.packed->in_out ? values : values.t());
}

void write_packed(const ParameterSpec& p, const at::Tensor& record, const ops::BlockMatrix& blocks) {
  if (p.packed->blocks == base::BlockFormat::none)
    ops::pack(packed_matrix(*p.packed, record), blocks);
  else
    ops::pack(packed_blocks(*p.packed, record), blocks);
}

void unpack_columns(const ParameterSpec::Packed& packed, const at::Tensor& record, const at::Tensor& rows,
                    const at::Tensor& to) {
  if (packed.blocks == base::BlockFormat::none)
    ops::unpack_columns(to, packed_matrix(packed, record), rows);
  else
    ops::unpack_columns(to, packed_blocks(packed, record), rows);
}

int64_t float8_bytes(const Product& product, int64_t tokens, int64_t in, int64_t out, bool on_gpu) {
  if (product.float8_work < 0) return 0;
  return std::max(ops::float8_scratch_bytes(tokens, out, in, on_gpu),
                  ops::float8_scratch_bytes(tokens, in, out, on_gpu));
}

namespace {

using ops::Float8;

// Values and weights have more bits, gradients a wider range. The gradients of weights are products of bfloat16: there
// a GPU would have to turn both operands over, which takes the time that 8 bits save, and their sums are the longest.
constexpr Float8 kOfValues = Float8::e4m3, kOfGradients = Float8::e5m2;

const at::Tensor& float8_scratch(const Product& product, const UnitTensors& t) {
  return t.work[static_cast<size_t>(product.float8_work)];
}

}  // namespace

void product_forward(const Product& product, const UnitTensors& t, const at::Tensor& y, const at::Tensor& x) {
  const Tensors& parameters = t.parameters;
  int64_t column = 0;
  for (size_t i = 0; i < product.packed.size(); ++i) {
    const ParameterSpec::Packed& part = product.packed[i];
    multiply_packed(part, y.narrow(1, column, part.n), x, parameters[static_cast<size_t>(product.weight) + i]);
    column += part.n;
  }
  if (!product.packed.empty()) return;
  if (!product.quantized.empty()) return ops::multiply_blocks(y, x, records_of(product, parameters).matrix(), true);
  const at::Tensor w = matrix_of(product, parameters);
  if (product.float8_work >= 0)
    return ops::multiply_float8(y, {x, kOfValues}, {product.in_out ? w : w.t(), kOfValues}, float8_scratch(product, t));
  product.in_out ? ops::linear_in_out_forward(y, x, w) : ops::linear_forward(y, x, w);
}

void product_forward_onto(const Product& product, const UnitTensors& t, const at::Tensor& y, const at::Tensor& x,
                          const at::Tensor& addend) {
  const at::Tensor w = matrix_of(product, t.parameters), by_in = product.in_out ? w : w.t();
  if (product.float8_work >= 0)
    return ops::multiply_float8(y, {x, kOfValues}, {by_in, kOfValues}, float8_scratch(product, t), addend);
  ops::multiply_onto(y, x, by_in, addend);
}

void product_bias(const Product& product, const at::Tensor& y, const Tensors& parameters) {
  if (product.bias >= 0) ops::bias_forward(y, joined(parameters, product.bias, product.parts));
}

void product_backward_input(const Product& product, const UnitTensors& t, const at::Tensor& dx, const at::Tensor& dy) {
  if (!product.quantized.empty())
    return ops::multiply_blocks(dx, dy, records_of(product, t.parameters).matrix(), false);
  const at::Tensor w = matrix_of(product, t.parameters);
  if (product.float8_work >= 0)
    return ops::multiply_float8(dx, {dy, kOfGradients}, {product.in_out ? w.t() : w, kOfValues},
                                float8_scratch(product, t));
  product.in_out ? ops::linear_in_out_backward_input(dx, dy, w) : ops::linear_backward_input(dx, dy, w);
}

void product_backward_weight(const Product& product, const UnitTensors& t, const at::Tensor& dy, const at::Tensor& x) {
  const auto gradient = [&](int first) -> ops::Gradient {
    const ops::Gradient of_first = t.gradient(static_cast<size_t>(first));
    if (!of_first.defined()) return {};
    return {joined(t.gradients, first, product.parts), of_first.accumulate};
  };
  const ops::Gradient dw = gradient(product.weight);
  product.in_out ? ops::linear_in_out_backward_weight(dw, dy, x) : ops::linear_backward_weight(dw, dy, x);
  if (product.bias >= 0) ops::bias_backward(gradient(product.bias), dy);
}

}  // namespace trireme::model
