#include "trireme/ops/products/library.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <limits>

#include "trireme/base/processor.h"
#include "trireme/ops/parallel.h"

// MKL's, which LibTorch exports if it contains MKL: matrices of 32-bit sizes, bfloat16 as its bits.
extern "C" __attribute__((weak)) void cblas_gemm_bf16bf16f32(int layout, int a_is, int b_is, int m, int n, int k,
                                                             float alpha, const void* a, int a_ld, const void* b,
                                                             int b_ld, float beta, float* c, int c_ld);

namespace trireme::ops {
namespace {

// On ARM, oneDNN and its library have their own products of bfloat16.
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

bool multiply_bfloat16_by_mkl(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;
  if (cblas_gemm_bf16bf16f32 == nullptr || a.scalar_type() != at::kBFloat16 || c.scalar_type() != at::kFloat ||
      a.numel() == 0 || b.numel() == 0)
    return false;
  for (const at::Tensor& x : {a, b, c})
    for (const int64_t size : {x.size(0), x.size(1), x.stride(0), x.stride(1)})
      if (size > std::numeric_limits<int>::max()) return false;
  if (!is_matrix(a) || !is_matrix(b) || !has_rows(c)) return false;
  const auto kind = [&](const at::Tensor& x) { return is_transposed(x) ? kTransposed : kPlain; };
  // The stride of a single row has no meaning, and may be less than MKL accepts.
  const auto ld = [&](const at::Tensor& x) {
    const int64_t row = is_transposed(x) ? 0 : 1;
    return static_cast<int>(std::max(x.stride(1 - row), x.size(row)));
  };
  cblas_gemm_bf16bf16f32(kRowMajor, kind(a), kind(b), static_cast<int>(a.size(0)), static_cast<int>(b.size(1)),
                         static_cast<int>(a.size(1)), 1, a.const_data_ptr(), ld(a), b.const_data_ptr(), ld(b),
                         accumulate ? 1.0f : 0.0f, c.mutable_data_ptr<float>(), ld(c));
  return true;
}

void multiply_by_library(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool accumulate) {
  // LibTorch sums products of halves in halves, or widens them slowly.
  if (a.scalar_type() == at::kHalf || (a.scalar_type() == at::kBFloat16 && widening_pays()))
    return multiply_in_float32(c, a, b, accumulate);
  at::AutoDispatchBelowADInplaceOrView without_autograd;
  at::Tensor out = c;
  if (c.scalar_type() == a.scalar_type()) {
    accumulate ? at::addmm_out(out, c, a, b) : at::mm_out(out, a, b);
    return;
  }
  if (multiply_bfloat16_by_mkl(c, a, b, accumulate)) return;
  // at::mm would first round the sums to a's dtype, so that a float32 gradient would have only bfloat16's accuracy.
  multiply_in_float32(c, a, b, accumulate);
}

}  // namespace trireme::ops
