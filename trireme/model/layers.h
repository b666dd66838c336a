// The norms and linear layers of a unit, as data: which parameters they read, and how these parameters are stored.
#pragma once

#include "trireme/model/unit.h"

namespace trireme::model {

/// LayerNorm if there is a bias, otherwise RMSNorm.
struct Norm {
  int weight = -1;    ///< index among a unit's parameters; -1: there is no such norm
  int bias = -1;      ///< -1: RMSNorm
  double offset = 0;  ///< added to the weight (Gemma: 1)
  bool present() const { return weight >= 0; }
  bool centered() const { return bias >= 0; }
};

/// What a norm keeps of each row; mean is undefined for RMSNorm.
struct NormStatistics {
  at::Tensor mean, rstd;
};

/// Where a norm's gradients go; bias is undefined for RMSNorm.
struct NormGradients {
  ops::Gradient weight, bias;
};

using Tensors = std::vector<at::Tensor>;

/// y = norm(x)
void norm_forward(const Norm& norm, const at::Tensor& y, const NormStatistics& statistics, const at::Tensor& x,
                  const Tensors& parameters, double eps);
/// sum = x + residual; y = norm(sum)
void add_norm_forward(const Norm& norm, const at::Tensor& sum, const at::Tensor& y, const NormStatistics& statistics,
                      const at::Tensor& x, const at::Tensor& residual, const Tensors& parameters, double eps);
/// dx = gradient through the norm + d_residual. Also writes y = norm(x) again; y may be dy.
void norm_backward(const Norm& norm, const at::Tensor& dx, const NormGradients& gradients, const at::Tensor& y,
                   const at::Tensor& dy, const at::Tensor& x, const Tensors& parameters,
                   const NormStatistics& statistics, const at::Tensor& d_residual);

/// The low-rank adapter (adapters.h) of one part of a product, on one tensor-parallel rank.
struct PartAdapter {
  int weight = -1;     ///< index among a unit's parameters: the part's own matrix
  int a = -1, b = -1;  ///< likewise: A [rank, in], B [out, rank]
  int bias = -1;       ///< likewise: B's bias [out]; -1: none
  int magnitude = -1;  ///< likewise: DoRA's magnitude of each output [out]; -1: none
  int64_t rank = 0;
  double scale = 1, dropout = 0;
  int64_t begin = 0, size = 0;  ///< the columns of y that it adds to
  uint64_t module = 0;          ///< hash of the module's name, for its dropout mask
  int64_t first_input = 0;      ///< of x among the columns of the module's whole input
  bool sums_a = false, sums_b = false;  ///< the gradient is summed over the tensor-parallel ranks
};

/// A linear layer.
struct Product {
  int weight = 0;       ///< index among a unit's parameters
  int parts = 1;        ///< the parameters from `weight` on that form one matrix (ParameterSpec::joined)
  int bias = -1;        ///< index of the first part's bias; the other parts' biases follow. -1: none
  bool in_out = false;  ///< stored [in, out] (GPT-2's Conv1D), otherwise [out, in]
  std::vector<PartAdapter> adapters = {};
  std::vector<ParameterSpec::Packed> packed = {};  ///< of each part, if they are packed
  std::vector<ops::BlockPart> quantized = {};  ///< of each part, if they are kept in blocks; then never in_out
  int float8_work = -1;  ///< slot of scratch, if the operands of y and dx are rounded to 8 bits
  int64_t adapter_ranks() const;  ///< the sum of the adapters' ranks
  int64_t magnitudes() const;     ///< the sum of the outputs of adapters with magnitudes
};

/// Parameters first .. first + parts - 1 as one tensor: they lie in memory without gaps.
at::Tensor joined(const Tensors& tensors, int first, int parts);

/// Keeps a matrix in panel order: sets the parameter's `packed`. One in blocks of 4 bits stays in 4 bits, if its blocks
/// lie in rows.
void pack(ParameterSpec& matrix, bool in_out, c10::ScalarType dtype);
/// Writes the record of a packed matrix from its values [rows, columns], in the record's dtype.
void write_packed(const ParameterSpec& matrix, const at::Tensor& record, const at::Tensor& values);

/// The same from a matrix in blocks.
void write_packed(const ParameterSpec& matrix, const at::Tensor& record, const ops::BlockMatrix& blocks);

/// to [R,k] = rows of a packed matrix [n,k], in blocks or not; -1: zeros.
void unpack_columns(const ParameterSpec::Packed& packed, const at::Tensor& record, const at::Tensor& rows,
                    const at::Tensor& to);

/// One part of a matrix in blocks; its record must outlive it.
ops::BlockRecords part_in_blocks(const Product& product, int weight, const Tensors& parameters);

/// Bytes of the scratch in which `product` rounds its operands, for so many tokens: the most of its products forward
/// and backward.
int64_t float8_bytes(const Product& product, int64_t tokens, int64_t in, int64_t out, bool on_gpu);

/// y = x W, without the bias: the bias of a row-parallel product is added once, after the sum over the ranks.
void product_forward(const Product& product, const UnitTensors& t, const at::Tensor& y, const at::Tensor& x);
/// y = addend + x W, for a product that is neither packed nor in blocks (ops::multiply_onto).
void product_forward_onto(const Product& product, const UnitTensors& t, const at::Tensor& y, const at::Tensor& x,
                          const at::Tensor& addend);
/// y += bias, if there is one.
void product_bias(const Product& product, const at::Tensor& y, const Tensors& parameters);
void product_backward_input(const Product& product, const UnitTensors& t, const at::Tensor& dx, const at::Tensor& dy);
/// Writes the gradients of the matrix and of the bias, or adds to them. Frozen parameters get none.
void product_backward_weight(const Product& product, const UnitTensors& t, const at::Tensor& dy, const at::Tensor& x);

}  // namespace trireme::model
