// The adapters of a product: y_part += scale * B(A(dropout(x))) for each adapted part, and their gradients. The matrix
// itself stays as it is (layers.h). Without adapters these functions do nothing, and the backward is the product's own.
//
// DoRA multiplies each output by magnitude / norm, where norm is that of the output's row of W + scale * B A. The norm
// counts as a constant in backward, as in PEFT:
//
//   y = W x + (magnitude / norm - 1) W dropout(x) + magnitude / norm * scale * B(A(dropout(x)))
//
// Norms are computed again in backward. The gradient of a magnitude needs the output again: one more product.
//
// The inner value A(dropout(x)) [T, rank] is not kept from forward to backward: it costs little to compute again.
// Tensor parallel: A of a column product and B of a row product are whole on every rank. A rank has the part of their
// gradient from its columns (rows), so these parts are summed over the ranks, all of a unit's in one call. So are the
// squares that the norms of a row product consist of, before its output.
#pragma once

#include <initializer_list>

#include "trireme/model/layers.h"
#include "trireme/model/tensor_parallel.h"

namespace trireme::model {

/// Scratch of the adapters of one product at a time; tensors that it does not need are undefined. The rows of x and y
/// may be some of a micro-batch's T tokens (the head's chunks).
struct AdapterBuffers {
  at::Tensor inner;  ///< [T * sum of ranks], compute dtype: scale * A(dropout(x)), adapter after adapter
  at::Tensor d_inner;  ///< likewise: scale * B^T dy
  at::Tensor dropped;  ///< [T * width of x]; with dropout
  at::Tensor wide;  ///< some rows of the widest tensor, statistics dtype (ops::add_product)
  at::Tensor keys;  ///< [T] int32, of all tokens of the micro-batch; with dropout
  int64_t first_row = 0;  ///< of x and y among these tokens
  at::Tensor scaled;  ///< [T * width of y]; with magnitudes
  at::Tensor magnitudes;  ///< [3 * Product::magnitudes()], statistics dtype: norms; magnitude / norm; gradients
  at::Tensor gradient;  ///< [width of y, or times a rank], statistics dtype; with magnitudes or biases
  at::Tensor bias;  ///< [width of y], compute dtype; with biases
};

/// The slots of a unit's buffers.
struct AdapterSpecs {
  TensorSpec inner, d_inner, dropped, wide, keys, scaled, magnitudes, gradient, bias;
};
/// What the products of a unit have at most.
struct ProductSizes {
  int64_t rows, in, out;  ///< rows at a time, width of inputs, width of outputs
  int64_t tokens;  ///< of the micro-batch
};
AdapterSpecs adapter_specs(std::initializer_list<const Product*> products, const ProductSizes& sizes,
                           const Precision& precision);

/// y += the adapters' product, before the bias. With magnitudes, y becomes magnitude / norm times the sum.
void adapters_forward(const Product& product, const UnitTensors& t, const Parallel& parallel, const AdapterBuffers& b,
                      const at::Tensor& y, const at::Tensor& x);
/// y += the biases of the adapters' B: once, after a sum over the ranks, as product_bias().
void adapters_bias(const Product& product, const UnitTensors& t, const AdapterBuffers& b, const at::Tensor& y);
/// dx = the gradient through the product with its adapters. Computes d_inner, and the norms and factors of magnitudes.
void adapted_backward_input(const Product& product, const UnitTensors& t, const Parallel& parallel,
                            const AdapterBuffers& b, const at::Tensor& dx, const at::Tensor& dy);
/// Between the two: computes `inner` and the gradients of magnitudes from x and dy.
void adapters_before_weight(const Product& product, const UnitTensors& t, const Parallel& parallel,
                            const AdapterBuffers& b, const at::Tensor& dy, const at::Tensor& x);
/// The calls of adapters_forward() and of adapted_backward_input() on the tensor-parallel ranks, for a row product.
void magnitude_traffic(const Product& product, const TensorTraffic& tp, std::vector<TrafficRow>& rows,
                       const Precision& precision);

/// Gradients that are summed over tensor-parallel ranks, of all adapters of a unit: one flat tensor of the statistics
/// dtype, in the order of the parameters.
class AdapterParts {
 public:
  AdapterParts() = default;
  AdapterParts(std::initializer_list<const Product*> products, const std::vector<ParameterSpec>& parameters);
  int64_t size() const { return size_; }
  /// The part of parameter `index` in `parts`, in the shape of `like`; undefined if it is not among them.
  at::Tensor of(const at::Tensor& parts, int index, const at::Tensor& like) const;
  /// Sums `parts` over the ranks, and writes the gradients.
  void write(const UnitTensors& t, const TensorParallel& tp, const at::Tensor& parts) const;

 private:
  struct Place {
    int index;
    int64_t begin, numel;
  };
  std::vector<Place> places_;
  int64_t size_ = 0;
};

/// Gradients of the adapters' parameters out of the buffers, x and dy. Those that `places` has go into `parts`.
void adapters_backward_weight(const Product& product, const UnitTensors& t, const Parallel& parallel,
                              const AdapterBuffers& b, const at::Tensor& dy, const at::Tensor& x,
                              const AdapterParts& places, const at::Tensor& parts);

}  // namespace trireme::model
