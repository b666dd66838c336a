// Rotary positions (Su et al., RoFormer, 2021) in Hugging Face's half-split order: element i of a head is paired with
// element i + d/2. The rotation is orthogonal, so the backward rotates by the negative angle.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/ops/announce.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/ops/elementwise/elementwise_kernels.h"
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

void rotate(const char* operation, const char* name, const at::Tensor& qkv, const at::Tensor& cosine,
            const at::Tensor& sine, int64_t num_heads, int64_t num_kv_heads, const at::Tensor& position_ids,
            bool inverse) {
  const auto dtype = compute_dtype(operation, name, qkv);
  check_dims(operation, name, qkv, 2);
  check_dims(operation, "cosine", cosine, 2);
  const int64_t sequence = cosine.size(0), half = cosine.size(1), rows = qkv.size(0);
  const int64_t num_parts = std::max<int64_t>(num_heads + 2 * num_kv_heads, 1);
  const int64_t head_dim = std::max(qkv.size(1) / num_parts, 2 * half), width = num_parts * head_dim;
  check_tensor(operation, name, qkv, {rows, width}, dtype);
  check_tensor(operation, "cosine", cosine, {sequence, half}, statistics_dtype(dtype));
  check_tensor(operation, "sine", sine, {sequence, half}, statistics_dtype(dtype));
  const int64_t* positions = nullptr;
  if (position_ids.defined()) {
    check_tensor(operation, "position_ids", position_ids, {rows}, at::kLong);
    check_ids(operation, "position_ids", position_ids, sequence, std::nullopt,
              [=] { return fmt::format("the tables of {} positions", sequence); });
    positions = position_ids.data_ptr<int64_t>();
  } else if (sequence == 0 ? rows != 0 : rows % sequence != 0) {
    throw ShapeError(fmt::format("{}: {} has {} rows, which is not a multiple of the sequence length {} of cosine",
                                 operation, name, rows, sequence));
  }
  const Announced announced([&] { return row_operation(operation, dtype, rows, width, {&qkv, &qkv}); });
  if (announced.skipped()) return;
  const RotaryArguments arguments{.dtype = storage_of(dtype),
                                  .qkv = qkv.mutable_data_ptr(),
                                  .row_width = width,
                                  .num_rotated_heads = num_heads + num_kv_heads,
                                  .half_dim = half,
                                  .sequence = sequence,
                                  .positions = positions,
                                  .cosine = cosine.const_data_ptr(),
                                  .sine = sine.const_data_ptr(),
                                  .inverse = inverse,
                                  .head_dim = head_dim};
  if (qkv.is_cuda() && head_dim != 2 * half)
    throw ShapeError(fmt::format("{}: part of a head is rotated on processors only", operation));
  if (qkv.is_cuda()) return cuda_kernels().rotary(arguments, rows);
  run_rows(rotary_rows, arguments, rows, width);
}

}  // namespace

void rotary_table(const at::Tensor& cosine, const at::Tensor& sine, std::span<const double> inverse_frequencies,
                  double attention_factor, int64_t first_position) {
  check_dims("rotary_table", "cosine", cosine, 2);
  const auto dtype = cosine.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  check_tensor("rotary_table", "cosine", cosine, cosine.sizes(), dtype);
  check_tensor("rotary_table", "sine", sine, cosine.sizes(), dtype);
  if (static_cast<int64_t>(inverse_frequencies.size()) != cosine.size(1))
    throw ShapeError(
        fmt::format("rotary_table: {} inverse frequencies for cosine of [{}, {}]; there must be one per column",
                    inverse_frequencies.size(), cosine.size(0), cosine.size(1)));
  constexpr int64_t kEnd = int64_t{1} << 24;
  if (first_position < 0 || first_position + cosine.size(0) > kEnd)
    throw ShapeError(fmt::format("rotary_table: positions {} to {} must be in 0 to {}", first_position,
                                 first_position + cosine.size(0) - 1, kEnd - 1));
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
