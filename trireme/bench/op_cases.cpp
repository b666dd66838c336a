#include "trireme/bench/op_cases.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::bench {

at::ScalarType Widths::wide() const { return dtype == at::kDouble ? at::kDouble : at::kFloat; }
double Widths::E() const { return static_cast<double>(c10::elementSize(dtype)); }
double Widths::W() const { return static_cast<double>(c10::elementSize(wide())); }

Widths widths_of(const model::ModelConfig& c, at::ScalarType dtype) {
  return {.D = c.hidden_size,
          .F = c.intermediate_size,
          .H = c.num_attention_heads,
          .K = c.num_key_value_heads,
          .d = c.head_dim,
          .V = c.vocab_size,
          .S = c.max_position_embeddings,
          .dtype = dtype};
}

at::Tensor Pool::cut(at::IntArrayRef sizes, at::ScalarType dtype) {
  constexpr int64_t kAlignment = 4096;
  int64_t bytes = static_cast<int64_t>(c10::elementSize(dtype));
  for (const int64_t size : sizes) bytes *= size;
  check_invariant(used_ + bytes <= memory_.bytes(), "the pool of bench ops holds its cases");
  at::Tensor t = at::from_blob(static_cast<char*>(memory_.data()) + used_, sizes, at::TensorOptions().dtype(dtype));
  used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return t;
}

at::Tensor Pool::values(at::IntArrayRef sizes, at::ScalarType dtype) {
  static const at::Tensor noise = at::rand({1 << 16}).mul_(2).sub_(1);
  at::Tensor t = cut(sizes, dtype);
  const at::Tensor block = noise.to(dtype), flat = t.view({-1});
  for (int64_t first = 0; first < flat.numel(); first += block.numel()) {
    const int64_t count = std::min(block.numel(), flat.numel() - first);
    flat.narrow(0, first, count).copy_(block.narrow(0, 0, count));
  }
  return t;
}

at::Tensor Pool::positive(at::IntArrayRef sizes, at::ScalarType dtype) {
  return values(sizes, dtype).mul_(0.5).add_(1);
}

at::Tensor Pool::ids(int64_t count, int64_t below) {
  at::Tensor t = cut({count}, at::kLong);
  t.copy_(at::randint(below, {count}, at::kLong));
  return t;
}

double MemoryCase::moved_bytes(const Widths& w, int64_t rows) const {
  const double positions = position_bytes == nullptr ? 0 : position_bytes(w);
  return row_bytes(w) * static_cast<double>(rows) + positions * static_cast<double>(std::min(rows, w.S)) +
         fixed_bytes(w);
}

int64_t MemoryCase::rows_for(const Widths& w, int64_t bytes) const {
  // moved_bytes() grows linearly up to one sequence, and linearly beyond it with another slope.
  const bool whole = moved_bytes(w, w.S) <= static_cast<double>(bytes);
  const int64_t from = whole ? w.S : 0;
  const double left = std::max(0.0, static_cast<double>(bytes) - moved_bytes(w, from)),
               each = moved_bytes(w, from + 1) - moved_bytes(w, from);
  const auto rows = std::max<int64_t>(8, from + static_cast<int64_t>(left / each));
  return rows >= w.S ? rows / w.S * w.S : rows;
}

}  // namespace trireme::bench
