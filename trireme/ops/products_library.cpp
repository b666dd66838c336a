#include "trireme/ops/products_library.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "trireme/base/processor.h"
#include "trireme/ops/parallel.h"

namespace trireme::ops {
namespace {

// On ARM oneDNN and its library have products of bfloat16 of their own.
bool widening_pays() {
#if defined(__x86_64__)
  return !base::processor().multiplies_bf16();
#else
  return false;
#endif
}

constexpr int64_t kPiece = 1024;

at::Tensor scratch(int which, int64_t rows, int64_t columns) {
  struct Pieces;
  float* all = thread_scratch<Pieces, float>(3 * kPiece * kPiece);
  return at::from_blob(all + which * kPiece * kPiece, {rows, columns}, at::kFloat);
}

/// Calls body(first, length) for pieces of [0, size); once with a length of 0 if there is nothing.
template <class Body>
void for_pieces(int64_t size, const Body& body) {
  for (int64_t first = 0; first == 0 || first < size; first += kPiece) body(first, std::min(kPiece, size - first));
}

}  // namespace

void multiply_in_float32(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  at::AutoDispatchBelowADInplaceOrView without_autograd;
  const auto piece = [](const at::Tensor& x, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    return x.narrow(0, row, rows).narrow(1, column, columns);
  };
  const int64_t k = a.size(1);
  for_pieces(c.size(1), [&](int64_t column, int64_t columns) {
    for_pieces(c.size(0), [&](int64_t row, int64_t rows) {
      const at::Tensor to = piece(c, row, rows, column, columns);
      at::Tensor sums = c.scalar_type() == at::kFloat ? to : scratch(0, rows, columns);
      for_pieces(k, [&](int64_t first, int64_t depth) {
        const at::Tensor wide_a = scratch(1, rows, depth), wide_b = scratch(2, depth, columns);
        wide_a.copy_(piece(a, row, rows, first, depth));
        wide_b.copy_(piece(b, first, depth, column, columns));
        if (first > 0 || accumulate)
          at::addmm_out(sums, sums, wide_a, wide_b);
        else
          at::mm_out(sums, wide_a, wide_b);
      });
      if (!sums.is_same(to)) to.copy_(sums);
    });
  });
}

void multiply_by_library(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  if (a.scalar_type() == at::kBFloat16 && widening_pays()) return multiply_in_float32(c, a, b, accumulate);
  at::AutoDispatchBelowADInplaceOrView without_autograd;
  at::Tensor out = c;
  if (c.scalar_type() == a.scalar_type()) {
    accumulate ? at::addmm_out(out, c, a, b) : at::mm_out(out, a, b);
    return;
  }
  const at::Tensor rounded = at::mm(a, b);
  accumulate ? out.add_(rounded) : out.copy_(rounded);
}

}  // namespace trireme::ops
