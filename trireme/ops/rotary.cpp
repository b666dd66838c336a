// Rotary positions (Su et al., RoFormer, 2021) in Hugging Face's half-split order: element i of a head is
// paired with element i + d/2. The rotation is orthogonal, so the backward rotates by the negative angle.
#include <cmath>
#include <string>

#include "trireme/base/error.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/cuda_kernels.h"
#include "trireme/ops/elementwise_kernels.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/parallel.h"

namespace trireme::ops {
namespace {

template <class T>
void fill_table(const at::Tensor& cosine, const at::Tensor& sine, std::span<const double> frequencies, double factor,
                int64_t first_position) {
  T* c = cosine.mutable_data_ptr<T>();
  T* s = sine.mutable_data_ptr<T>();
  const int64_t sequence = cosine.size(0), half = cosine.size(1);
  for (int64_t i = 0; i < half; ++i) {
    const auto frequency = static_cast<float>(frequencies[i]);
    for (int64_t position = 0; position < sequence; ++position) {
      const double angle = static_cast<float>(first_position + position) * frequency;  // rounded to float32
      c[position * half + i] = static_cast<T>(std::cos(angle) * factor);
      s[position * half + i] = static_cast<T>(std::sin(angle) * factor);
    }
  }
}

/// Those on a device are not read here.
const int64_t* checked_positions(const char* operation, const at::Tensor& ids, int64_t rows, int64_t end) {
  if (!ids.defined()) return nullptr;
  check_tensor(operation, "position_ids", ids, {rows}, at::kLong);
  const auto* id = ids.data_ptr<int64_t>();
  if (!ids.is_cpu()) return id;
  for (int64_t t = 0; t < rows; ++t)
    if (id[t] < 0 || id[t] >= end)
      throw ShapeError(std::string(operation) + ": position_ids[" + std::to_string(t) + "] = " + std::to_string(id[t]) +
                       " is outside the tables of " + std::to_string(end) + " positions");
  return id;
}

void rotate(const char* operation, const char* name, const at::Tensor& qkv, const at::Tensor& cosine,
            const at::Tensor& sine, int64_t num_heads, int64_t num_kv_heads, const at::Tensor& position_ids,
            bool inverse) {
  const auto dtype = compute_dtype(operation, name, qkv);
  check_dims(operation, name, qkv, 2);
  check_dims(operation, "cosine", cosine, 2);
  const int64_t sequence = cosine.size(0), half = cosine.size(1), rows = qkv.size(0);
  const int64_t width = (num_heads + 2 * num_kv_heads) * 2 * half;
  check_tensor(operation, name, qkv, {rows, width}, dtype);
  check_tensor(operation, "cosine", cosine, {sequence, half}, statistics_dtype(dtype));
  check_tensor(operation, "sine", sine, {sequence, half}, statistics_dtype(dtype));
  const int64_t* positions = checked_positions(operation, position_ids, rows, sequence);
  if (positions == nullptr && (sequence == 0 ? rows != 0 : rows % sequence != 0))
    throw ShapeError(std::string(operation) + ": " + name + " has " + std::to_string(rows) +
                     " rows, which is not a multiple of the sequence length " + std::to_string(sequence) +
                     " of cosine");
  const RotaryArguments arguments{.dtype = storage_of(dtype),
                                  .qkv = qkv.mutable_data_ptr(),
                                  .row_width = width,
                                  .num_rotated_heads = num_heads + num_kv_heads,
                                  .half_dim = half,
                                  .sequence = sequence,
                                  .positions = positions,
                                  .cosine = cosine.const_data_ptr(),
                                  .sine = sine.const_data_ptr(),
                                  .inverse = inverse};
  if (qkv.is_cuda()) return cuda_kernels().rotary(arguments, rows);
  parallel_rows(rows, row_grain(width), [&](int64_t first, int64_t last) { rotary_rows(arguments, first, last); });
}

}  // namespace

void rotary_table(const at::Tensor& cosine, const at::Tensor& sine, std::span<const double> inverse_frequencies,
                  double attention_factor, int64_t first_position) {
  check_dims("rotary_table", "cosine", cosine, 2);
  const auto dtype = cosine.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  check_tensor("rotary_table", "cosine", cosine, cosine.sizes(), dtype);
  check_tensor("rotary_table", "sine", sine, cosine.sizes(), dtype);
  if (static_cast<int64_t>(inverse_frequencies.size()) != cosine.size(1))
    throw ShapeError("rotary_table: " + std::to_string(inverse_frequencies.size()) +
                     " inverse frequencies for cosine " + "of [" + std::to_string(cosine.size(0)) + ", " +
                     std::to_string(cosine.size(1)) + "]; there must be one per column");
  constexpr int64_t kEnd = int64_t{1} << 24;
  if (first_position < 0 || first_position + cosine.size(0) > kEnd)
    throw ShapeError("rotary_table: positions " + std::to_string(first_position) + " to " +
                     std::to_string(first_position + cosine.size(0) - 1) + " must lie in 0 to " +
                     std::to_string(kEnd - 1));
  const auto fill = dtype == at::kDouble ? fill_table<double> : fill_table<float>;
  fill(cosine, sine, inverse_frequencies, attention_factor, first_position);
}

void rotary_forward(const at::Tensor& qkv, const at::Tensor& cosine, const at::Tensor& sine, int64_t num_heads,
                    int64_t num_kv_heads, const at::Tensor& position_ids) {
  rotate("rotary_forward", "qkv", qkv, cosine, sine, num_heads, num_kv_heads, position_ids, false);
}

void rotary_backward(const at::Tensor& dqkv, const at::Tensor& cosine, const at::Tensor& sine, int64_t num_heads,
                     int64_t num_kv_heads, const at::Tensor& position_ids) {
  rotate("rotary_backward", "dqkv", dqkv, cosine, sine, num_heads, num_kv_heads, position_ids, true);
}

}  // namespace trireme::ops
