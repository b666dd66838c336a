// The adapters of a product: y_part += scale * B(A(dropout(x))) for each adapted part, and their gradients. The matrix
// itself stays as it is (layers.h). Without adapters these functions do nothing.
//
// The inner value A(dropout(x)) [T, rank] is not kept from forward to backward: it costs little to compute again.
// Tensor parallel: A of a column product and B of a row product are whole on every rank. A rank has the part of their
// gradient from its columns (rows), so these parts are summed over the ranks, all of a unit's in one call.
#pragma once

#include <initializer_list>

#include "trireme/model/layers.h"
#include "trireme/model/tensor_parallel.h"

namespace trireme::model {

/// Scratch of the adapters of one product at a time; tensors that it does not need are undefined.
struct AdapterBuffers {
  at::Tensor inner;    ///< [T * sum of ranks], compute dtype: scale * A(dropout(x)), adapter after adapter
  at::Tensor d_inner;  ///< likewise: scale * B^T dy
  at::Tensor dropped;  ///< [T * width of x]; with dropout
  at::Tensor wide;     ///< some rows of the widest tensor, statistics dtype (ops::add_product)
  at::Tensor keys;     ///< [T] int32; with dropout
};

/// The slots of a unit's buffers, for products over `tokens` rows whose inputs and outputs are at most `width` wide.
struct AdapterSpecs {
  TensorSpec inner, d_inner, dropped, wide, keys;
};
AdapterSpecs adapter_specs(std::initializer_list<const Product*> products, int64_t tokens, int64_t width,
                           const Precision& precision);

/// y += the adapters' product, before the bias.
void adapters_forward(const Product& product, const UnitTensors& t, const Parallel& parallel, const AdapterBuffers& b,
                      const at::Tensor& y, const at::Tensor& x);
/// Computes d_inner, and dx += the adapters' part.
void adapters_backward_input(const Product& product, const UnitTensors& t, const Parallel& parallel,
                             const AdapterBuffers& b, const at::Tensor& dx, const at::Tensor& dy);
/// Computes `inner` from x.
void adapters_inner(const Product& product, const UnitTensors& t, const Parallel& parallel, const AdapterBuffers& b,
                    const at::Tensor& x);
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

/// Gradients of A and B out of `inner`, `d_inner`, x and dy. Those that `places` has go into `parts`.
void adapters_backward_weight(const Product& product, const UnitTensors& t, const Parallel& parallel,
                              const AdapterBuffers& b, const at::Tensor& dy, const at::Tensor& x,
                              const AdapterParts& places, const at::Tensor& parts);

}  // namespace trireme::model
