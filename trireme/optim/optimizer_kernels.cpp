#include "trireme/optim/optimizer_kernels.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/optim/optimizer_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes before every header that is compiled per target.
#include "trireme/ops/simd/loops-inl.h"
#include "trireme/ops/simd/simd-inl.h"
#include "trireme/optim/lane_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::optim::HWY_NAMESPACE {
namespace {

namespace simd = ops::HWY_NAMESPACE;

/// What an update keeps in registers.
template <class T>
struct Constants {
  using V = hn::Vec<hn::ScalableTag<T>>;
  V scale, rest1, beta1, beta2, rest2, eps, keep, l2, step_size, inverse_root_bias2, momentum;
  bool nesterov;
  explicit HWY_INLINE Constants(const UpdateArguments& a)
      : scale(set(a.gradient_scale)),
        rest1(set(1 - a.beta1)),
        beta1(set(a.beta1)),
        beta2(set(a.beta2)),
        rest2(set(1 - a.beta2)),
        eps(set(a.eps)),
        keep(set(a.keep)),
        l2(set(a.l2)),
        step_size(set(a.step_size)),
        inverse_root_bias2(set(1 / a.root_bias2)),
        momentum(set(a.momentum)),
        nesterov(a.nesterov) {}

 private:
  static HWY_INLINE V set(double value) { return hn::Set(hn::ScalableTag<T>(), static_cast<T>(value)); }
};

/// The direction of LAMB's step, from moments that have been updated.
template <class V, class C>
HWY_INLINE V lamb_direction(const C& c, V p, V first, V second) {
  return hn::MulAdd(c.l2, p, hn::Div(first, hn::Add(hn::Sqrt(second), c.eps)));
}

/// One vector of the rule: the weights after the step. `first` and `second` are the state, read and written.
template <Rule kRule, class V, class C>
HWY_INLINE V stepped(const C& c, V p, V g, V& first, V& second) {
  if constexpr (kRule == Rule::adam || kRule == Rule::sgd || kRule == Rule::adagrad || kRule == Rule::lars)
    g = hn::MulAdd(c.l2, p, g);
  if constexpr (kRule == Rule::sgd) {
    first = hn::MulAdd(c.momentum, first, g);  // without momentum: g
    return hn::NegMulAdd(c.step_size, c.nesterov ? hn::MulAdd(c.momentum, first, g) : first, p);
  } else if constexpr (kRule == Rule::adagrad) {
    first = hn::MulAdd(g, g, first);
    return hn::NegMulAdd(c.step_size, hn::Div(g, hn::Add(hn::Sqrt(first), c.eps)), p);
  } else if constexpr (kRule == Rule::lars) {
    first = hn::MulAdd(c.momentum, first, hn::Mul(c.step_size, g));
    return hn::Sub(p, first);
  } else if constexpr (kRule == Rule::lamb) {
    return hn::NegMulAdd(c.step_size, lamb_direction(c, p, first, second), p);
  } else if constexpr (kRule == Rule::lion) {
    const hn::DFromV<V> d;
    const V mixed = hn::MulAdd(c.beta1, first, hn::Mul(c.rest1, g));
    // The sign of zero is zero; a NaN stays NaN.
    const V sign = hn::IfThenElse(hn::Eq(mixed, hn::Zero(d)), hn::Zero(d),
                                  hn::IfThenElse(hn::IsNaN(mixed), mixed, hn::CopySign(hn::Set(d, 1), mixed)));
    first = hn::MulAdd(c.beta2, first, hn::Mul(c.rest2, g));
    return hn::NegMulAdd(c.step_size, sign, hn::Mul(p, c.keep));
  } else {
    first = hn::MulAdd(c.rest1, hn::Sub(g, first), first);
    second = hn::MulAdd(hn::Mul(c.rest2, g), g, hn::Mul(c.beta2, second));
    const V denominator = hn::MulAdd(hn::Sqrt(second), c.inverse_root_bias2, c.eps);
    return hn::NegMulAdd(c.step_size, hn::Div(first, denominator), kRule == Rule::adamw ? hn::Mul(p, c.keep) : p);
  }
}

/// Compute: how the bfloat16 copy is rounded. kStates: tensors of state.
template <Rule kRule, int kStates, class T, class Compute>
void update(const UpdateArguments& a, int64_t from, int64_t last) {
  const hn::ScalableTag<T> d;
  T* master = static_cast<T*>(a.master) + from;
  T* state[2] = {};
  for (int k = 0; k < kStates; ++k) state[k] = static_cast<T*>(a.state[k]) + from;
  const T* gradient = static_cast<const T*>(a.gradient) + from;
  auto* bf16 = a.compute_bf16 == nullptr ? nullptr : static_cast<Compute*>(a.compute_bf16) + from;
  T* same = a.compute_same == nullptr ? nullptr : static_cast<T*>(a.compute_same) + from;
  const Constants<T> constants(a);
  const auto step = [=](int64_t i, auto n) HWY_ATTR {
    auto first = hn::Zero(d), second = hn::Zero(d);
    if constexpr (kStates > 0) first = simd::load(d, state[0] + i, n);
    if constexpr (kStates > 1) second = simd::load(d, state[1] + i, n);
    const auto g = hn::Mul(simd::load(d, gradient + i, n), constants.scale);
    const auto p = stepped<kRule>(constants, simd::load(d, master + i, n), g, first, second);
    if constexpr (kStates > 0) simd::store(d, first, state[0] + i, n);
    if constexpr (kStates > 1) simd::store(d, second, state[1] + i, n);
    simd::store(d, p, master + i, n);
    if (same != nullptr) simd::store(d, p, same + i, n);
    if constexpr (std::is_same_v<T, float>) {
      if (bf16 != nullptr) simd::store(d, p, bf16 + i, n);
    } else {
      if (bf16 != nullptr) {
        for (int64_t k = i; k < std::min<int64_t>(i + hn::Lanes(d), last - from); ++k)
          bf16[k] = ops::narrow<Compute>(static_cast<float>(master[k]));
      }
    }
  };
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), count = last - from;
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    // The processor does not prefetch so many streams itself (Cascade Lake, AdamW: 17 instead of 12 GB/s).
    constexpr int64_t kAhead = 2048;
    simd::fetch(master + i + kAhead), simd::fetch(gradient + i + kAhead);
    for (int k = 0; k < kStates; ++k) simd::fetch(state[k] + i + kAhead);
    if (same != nullptr) simd::fetch(same + i + kAhead);
    if (bf16 != nullptr) simd::fetch(bf16 + i + kAhead);
    step(i, simd::Full{});
  }
  if (i < count) step(i, simd::Part{static_cast<size_t>(count - i)});
}

template <class T, class Compute>
void update_by_rule(const UpdateArguments& a, int64_t first, int64_t last) {
  switch (a.rule) {
    case Rule::adamw:
      return update<Rule::adamw, 2, T, Compute>(a, first, last);
    case Rule::adam:
      return update<Rule::adam, 2, T, Compute>(a, first, last);
    case Rule::sgd:
      return a.momentum > 0 ? update<Rule::sgd, 1, T, Compute>(a, first, last)
                            : update<Rule::sgd, 0, T, Compute>(a, first, last);
    case Rule::lion:
      return update<Rule::lion, 1, T, Compute>(a, first, last);
    case Rule::adagrad:
      return update<Rule::adagrad, 1, T, Compute>(a, first, last);
    case Rule::lars:
      return update<Rule::lars, 1, T, Compute>(a, first, last);
    case Rule::lamb:
      return update<Rule::lamb, 2, T, Compute>(a, first, last);
    case Rule::adafactor:
    case Rule::adamw8bit:
    case Rule::muon:
      return;  // adafactor.cpp, adamw8bit.cpp, by_tensor.cpp
  }
}

void update_span(const UpdateArguments& a, int64_t first, int64_t last) {
  if (a.dtype == ops::Storage::kFloat64) return update_by_rule<double, ops::bfloat16>(a, first, last);
#if TRIREME_OPS_AVX512
  if (ops::has_native_bfloat16()) return update_by_rule<float, ops::native_bfloat16>(a, first, last);
#endif
  update_by_rule<float, ops::bfloat16>(a, first, last);
}

template <class T>
void norms(const NormArguments& a, int64_t first, int64_t last) {
  const T* x = static_cast<const T*>(a.gradient);
  for (int64_t block = first; block < last; ++block)
    a.partials[block] = sum_of_squares_of(x + block * a.block, std::min(a.block, a.count - block * a.block));
}

template <class T>
void lamb_norms(const UpdateArguments& a, int64_t begin, int64_t end, int64_t block, int64_t number, double* partials) {
  const hn::ScalableTag<T> d;
  const Constants<T> c(a);
  HWY_ALIGN T directions[4096];
  const int64_t from = begin + number * block, count = std::min(block, end - from);
  const T* master = static_cast<const T*>(a.master) + from;
  const T* gradient = static_cast<const T*>(a.gradient) + from;
  T *m = static_cast<T*>(a.state[0]) + from, *v = static_cast<T*>(a.state[1]) + from;
  const auto step = [&](int64_t i, auto n) HWY_ATTR {
    const auto g = hn::Mul(simd::load(d, gradient + i, n), c.scale);
    auto first = simd::load(d, m + i, n), second = simd::load(d, v + i, n);
    first = hn::MulAdd(c.rest1, hn::Sub(g, first), first);
    second = hn::MulAdd(hn::Mul(c.rest2, g), g, hn::Mul(c.beta2, second));
    simd::store(d, first, m + i, n);
    simd::store(d, second, v + i, n);
    simd::store(d, lamb_direction(c, simd::load(d, master + i, n), first, second), directions + i, n);
  };
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) step(i, simd::Full{});
  if (i < count) step(i, simd::Part{static_cast<size_t>(count - i)});
  partials[number] = sum_of_squares_of(directions, count);
}

void lamb_blocks_of(const UpdateArguments& a, int64_t begin, int64_t end, std::pair<int64_t, int64_t> blocks,
                    int64_t block, double* partials) {
  for (int64_t number = blocks.first; number < blocks.second; ++number)
    a.dtype == ops::Storage::kFloat64 ? lamb_norms<double>(a, begin, end, block, number, partials)
                                      : lamb_norms<float>(a, begin, end, block, number, partials);
}

void squared_norm(const NormArguments& a, int64_t first, int64_t last) {
  a.dtype == ops::Storage::kFloat64 ? norms<double>(a, first, last) : norms<float>(a, first, last);
}

}  // namespace
}  // namespace trireme::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::optim {

HWY_EXPORT(update_span);
HWY_EXPORT(squared_norm);
HWY_EXPORT(lamb_blocks_of);

void update_elements(const UpdateArguments& a, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(update_span)(a, first, last);
}
void lamb_blocks(const UpdateArguments& a, int64_t begin, int64_t end, std::pair<int64_t, int64_t> blocks,
                 int64_t block, double* partials) {
  HWY_DYNAMIC_DISPATCH(lamb_blocks_of)(a, begin, end, blocks, block, partials);
}
void squared_norm_blocks(const NormArguments& a, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(squared_norm)(a, first, last);
}

}  // namespace trireme::optim
#endif  // HWY_ONCE
