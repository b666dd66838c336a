// RMSNorm over all query heads together, and over all key heads (OLMo 2). A row's sums of squares are an operation of
// their own, because ranks that divide the heads add theirs before anything is scaled. Plain loops, which the
// compiler turns into vectors.
#include <ATen/OpMathType.h>

#include <array>
#include <cmath>

#include "trireme/ops/announce.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/parallel.h"

namespace trireme::ops {
namespace {

/// Columns [begin, begin + width) of qkv: those of q, or of k.
struct HeadColumns {
  int64_t begin, width, whole;
};

/// Calls work(T()) with the storage type of the tensor.
template <class Work>
void with_type_of(const char* operation, const at::Tensor& tensor, const Work& work) {
  switch (compute_dtype(operation, "qkv", tensor)) {
    case at::kDouble:
      return work(double());
    case at::kBFloat16:
      return work(at::BFloat16());
    case at::kHalf:
      return work(at::Half());
    default:
      return work(float());
  }
}

/// term(0) + ... + term(n - 1) as 16 sums side by side, which the compiler keeps in vectors; always in the same order.
template <class W, class Term>
W lane_sum(int64_t n, const Term& term) {
  constexpr int64_t kLanes = 16;
  W lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t k = 0; k < kLanes; ++k) lanes[k] += term(i + k);
  for (int64_t k = 0; i < n; ++i, ++k) lanes[k] += term(i);
  for (int64_t width = kLanes / 2; width > 0; width /= 2)
    for (int64_t k = 0; k < width; ++k) lanes[k] += lanes[k + width];
  return lanes[0];
}

struct WideNormShape {
  int64_t rows, row_width;
  std::array<HeadColumns, 2> parts;  ///< q and k
};

WideNormShape wide_norm_shape(const char* operation, const at::Tensor& qkv, int64_t q_width, int64_t kv_width,
                              int64_t whole_q_width, int64_t whole_kv_width) {
  check_dims(operation, "qkv", qkv, 2);
  check_tensor(operation, "qkv", qkv, {qkv.size(0), q_width + 2 * kv_width}, qkv.scalar_type());
  return {qkv.size(0), qkv.size(1), {{{0, q_width, whole_q_width}, {q_width, kv_width, whole_kv_width}}}};
}

void check_wide_norm(const char* operation, const WideNormShape& s, const at::Tensor& qkv, const at::Tensor& sums,
                     const at::Tensor& w_q, const at::Tensor& w_k) {
  check_tensor(operation, "sums", sums, {s.rows, 2}, statistics_dtype(qkv.scalar_type()));
  check_tensor(operation, "w_q", w_q, {s.parts[0].width}, qkv.scalar_type());
  check_tensor(operation, "w_k", w_k, {s.parts[1].width}, qkv.scalar_type());
}

}  // namespace

void wide_norm_squares(const at::Tensor& sums, const at::Tensor& qkv, int64_t q_width, int64_t kv_width) {
  constexpr auto kOperation = "wide_norm_squares";
  const WideNormShape s = wide_norm_shape(kOperation, qkv, q_width, kv_width, q_width, kv_width);
  const Announced announced([&] { return row_operation(kOperation, qkv.scalar_type(), s.rows, s.row_width, {&qkv}); });
  if (announced.skipped()) return;
  with_type_of(kOperation, qkv, [&]<class T>(T) {
    using W = at::opmath_type<T>;
    check_tensor(kOperation, "sums", sums, {s.rows, 2}, statistics_dtype(qkv.scalar_type()));
    const T* x = qkv.data_ptr<T>();
    W* to = sums.data_ptr<W>();
    parallel_rows(s.rows, row_grain(s.row_width), [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t)
        for (size_t part = 0; part < 2; ++part) {
          const T* row = x + t * s.row_width + s.parts[part].begin;
          to[2 * t + static_cast<int64_t>(part)] = lane_sum<W>(
              s.parts[part].width, [=](int64_t i) { return static_cast<W>(row[i]) * static_cast<W>(row[i]); });
        }
    });
  });
}

void wide_norm_forward(const at::Tensor& qkv, const at::Tensor& raw, const at::Tensor& rstd, const at::Tensor& sums,
                       const at::Tensor& w_q, const at::Tensor& w_k, int64_t whole_q_width, int64_t whole_kv_width,
                       double eps) {
  constexpr auto kOperation = "wide_norm_forward";
  const WideNormShape s = wide_norm_shape(kOperation, qkv, w_q.size(0), w_k.size(0), whole_q_width, whole_kv_width);
  check_wide_norm(kOperation, s, qkv, sums, w_q, w_k);
  check_tensor(kOperation, "rstd", rstd, {s.rows, 2}, sums.scalar_type());
  if (raw.defined())
    check_tensor(kOperation, "raw", raw, {s.rows, s.parts[0].width + s.parts[1].width}, qkv.scalar_type());
  const Announced announced(
      [&] { return row_operation(kOperation, qkv.scalar_type(), s.rows, s.row_width, {&qkv, &qkv, &raw}); });
  if (announced.skipped()) return;
  with_type_of(kOperation, qkv, [&]<class T>(T) {
    using W = at::opmath_type<T>;
    const std::array<const T*, 2> weights = {w_q.data_ptr<T>(), w_k.data_ptr<T>()};
    T* x = qkv.data_ptr<T>();
    T* copy = raw.defined() ? raw.data_ptr<T>() : nullptr;
    const W* sum = sums.data_ptr<W>();
    W* factors = rstd.data_ptr<W>();
    parallel_rows(s.rows, row_grain(s.row_width), [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t)
        for (size_t part = 0; part < 2; ++part) {
          const HeadColumns& c = s.parts[part];
          const auto at = 2 * t + static_cast<int64_t>(part);
          const W factor = 1 / std::sqrt(sum[at] / static_cast<W>(c.whole) + static_cast<W>(eps));
          factors[at] = factor;
          T* row = x + t * s.row_width + c.begin;
          T* kept = copy == nullptr ? nullptr : copy + t * (s.parts[0].width + s.parts[1].width) + c.begin;
          for (int64_t i = 0; i < c.width; ++i) {
            if (kept != nullptr) kept[i] = row[i];
            row[i] = static_cast<T>(static_cast<W>(row[i]) * factor * static_cast<W>(weights[part][i]));
          }
        }
    });
  });
}

void wide_norm_backward_sums(const at::Tensor& sums, const Gradient& dw_q, const Gradient& dw_k, const at::Tensor& dqkv,
                             const at::Tensor& raw, const at::Tensor& rstd, const at::Tensor& w_q,
                             const at::Tensor& w_k) {
  constexpr auto kOperation = "wide_norm_backward_sums";
  const WideNormShape s = wide_norm_shape(kOperation, dqkv, w_q.size(0), w_k.size(0), w_q.size(0), w_k.size(0));
  check_wide_norm(kOperation, s, dqkv, sums, w_q, w_k);
  const int64_t raw_width = s.parts[0].width + s.parts[1].width;
  check_tensor(kOperation, "raw", raw, {s.rows, raw_width}, dqkv.scalar_type());
  const Announced announced(
      [&] { return row_operation(kOperation, dqkv.scalar_type(), s.rows, s.row_width, {&dqkv, &dqkv, &raw, &raw}); });
  if (announced.skipped()) return;
  with_type_of(kOperation, dqkv, [&]<class T>(T) {
    using W = at::opmath_type<T>;
    const std::array<const T*, 2> weights = {w_q.data_ptr<T>(), w_k.data_ptr<T>()};
    const T *dy = dqkv.data_ptr<T>(), *x = raw.data_ptr<T>();
    W* to = sums.data_ptr<W>();
    parallel_rows(s.rows, row_grain(s.row_width), [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t)
        for (size_t part = 0; part < 2; ++part) {
          const HeadColumns& c = s.parts[part];
          const T *d = dy + t * s.row_width + c.begin, *row = x + t * raw_width + c.begin;
          to[2 * t + static_cast<int64_t>(part)] = lane_sum<W>(c.width, [=, w = weights[part]](int64_t i) {
            return static_cast<W>(d[i]) * static_cast<W>(w[i]) * static_cast<W>(row[i]);
          });
        }
    });
    const W* factors = rstd.data_ptr<W>();
    for (size_t part = 0; part < 2; ++part) {
      const HeadColumns& c = s.parts[part];
      const Gradient& gradient = part == 0 ? dw_q : dw_k;
      if (!gradient.defined()) continue;
      W* column = thread_scratch<HeadColumns, W>(c.width);
      // A thread has columns of its own, and adds rows in order.
      parallel_rows(c.width, row_grain(s.rows), [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) column[i] = 0;
        for (int64_t t = 0; t < s.rows; ++t) {
          const T *d = dy + t * s.row_width + c.begin, *row = x + t * raw_width + c.begin;
          const W factor = factors[2 * t + static_cast<int64_t>(part)];
          for (int64_t i = first; i < last; ++i) column[i] += static_cast<W>(d[i]) * (static_cast<W>(row[i]) * factor);
        }
      });
      write_gradient(gradient, at::from_blob(column, {c.width}, sums.options()));
    }
  });
}

void wide_norm_backward(const at::Tensor& dqkv, const at::Tensor& sums, const at::Tensor& raw, const at::Tensor& rstd,
                        const at::Tensor& w_q, const at::Tensor& w_k, int64_t whole_q_width, int64_t whole_kv_width) {
  constexpr auto kOperation = "wide_norm_backward";
  const WideNormShape s = wide_norm_shape(kOperation, dqkv, w_q.size(0), w_k.size(0), whole_q_width, whole_kv_width);
  check_wide_norm(kOperation, s, dqkv, sums, w_q, w_k);
  const int64_t raw_width = s.parts[0].width + s.parts[1].width;
  const Announced announced(
      [&] { return row_operation(kOperation, dqkv.scalar_type(), s.rows, s.row_width, {&dqkv, &dqkv, &raw}); });
  if (announced.skipped()) return;
  with_type_of(kOperation, dqkv, [&]<class T>(T) {
    using W = at::opmath_type<T>;
    const std::array<const T*, 2> weights = {w_q.data_ptr<T>(), w_k.data_ptr<T>()};
    T* dy = dqkv.data_ptr<T>();
    const T* x = raw.data_ptr<T>();
    const W *sum = sums.data_ptr<W>(), *factors = rstd.data_ptr<W>();
    parallel_rows(s.rows, row_grain(s.row_width), [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t)
        for (size_t part = 0; part < 2; ++part) {
          const HeadColumns& c = s.parts[part];
          const auto at = 2 * t + static_cast<int64_t>(part);
          const W factor = factors[at], mean = sum[at] * factor * factor / static_cast<W>(c.whole);
          T* d = dy + t * s.row_width + c.begin;
          const T* row = x + t * raw_width + c.begin;
          for (int64_t i = 0; i < c.width; ++i)
            d[i] = static_cast<T>(
                factor * (static_cast<W>(d[i]) * static_cast<W>(weights[part][i]) - static_cast<W>(row[i]) * mean));
        }
    });
  });
}

}  // namespace trireme::ops
