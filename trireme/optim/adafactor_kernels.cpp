#include "trireme/optim/adafactor_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/optim/adafactor_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes before every header that is compiled per target.
#include "trireme/optim/lane_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::optim::HWY_NAMESPACE {
namespace {

/// Vectors of u.
template <class T>
struct Steps {
  const T* gradient;
  const double* column;
  hn::Vec<DoubleTag> row;
  explicit HWY_INLINE Steps(const FactorRun& run)
      : gradient(static_cast<const T*>(run.gradient)), column(run.column), row(hn::Set(DoubleTag(), run.row)) {}
  HWY_INLINE auto operator()(int64_t i) const {
    return hn::Mul(hn::Mul(load_doubles(gradient + i), row), load_doubles(column + i));
  }
  HWY_INLINE auto operator()(int64_t i, int64_t n) const {
    return hn::Mul(hn::Mul(load_doubles(gradient + i, n), row), load_doubles(column + i, n));
  }
};

template <class T>
RowSquares squares_of_row(const FactorRun& run) {
  return {sum_of_squares_of(static_cast<const T*>(run.gradient), run.count),
          sum_of_squares_of(static_cast<const T*>(run.master), run.count)};
}

template <class T>
void add_squares(const FactorRun& run) {
  constexpr DoubleTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* gradient = static_cast<const T*>(run.gradient);
  const auto row = hn::Set(d, run.row);
  int64_t i = 0;
  for (; i + lanes <= run.count; i += lanes) {
    const auto g = hn::Mul(load_doubles(gradient + i), row);
    hn::StoreU(hn::Add(hn::LoadU(d, run.column + i), hn::Mul(g, g)), d, run.column + i);
  }
  for (; i < run.count; ++i) {
    const double g = static_cast<double>(gradient[i]) * run.row;
    run.column[i] += g * g;
  }
}

template <class T>
void move(const FactorRun& run, double keep, double rate) {
  constexpr DoubleTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  T* master = static_cast<T*>(run.master);
  const Steps<T> steps(run);
  const auto kept = hn::Set(d, keep), moved = hn::Set(d, rate);
  int64_t i = 0;
  for (; i + lanes <= run.count; i += lanes) {
    const auto p = hn::Sub(hn::Mul(load_doubles(master + i), kept), hn::Mul(moved, steps(i)));
    if constexpr (std::is_same_v<T, double>)
      hn::StoreU(p, d, master + i);
    else
      hn::StoreU(hn::DemoteTo(hn::Rebind<T, DoubleTag>(), p), hn::Rebind<T, DoubleTag>(), master + i);
  }
  for (; i < run.count; ++i) {
    const double u = static_cast<double>(steps.gradient[i]) * run.row * run.column[i];
    master[i] = static_cast<T>(static_cast<double>(master[i]) * keep - rate * u);
  }
}

RowSquares row_squares_of(const FactorRun& run) {
  return run.dtype == ops::Storage::kFloat64 ? squares_of_row<double>(run) : squares_of_row<float>(run);
}
void add_column_squares_of(const FactorRun& run) {
  run.dtype == ops::Storage::kFloat64 ? add_squares<double>(run) : add_squares<float>(run);
}
double step_squares_of(const FactorRun& run) {
  return run.dtype == ops::Storage::kFloat64 ? sum_of_squares(run.count, Steps<double>(run))
                                             : sum_of_squares(run.count, Steps<float>(run));
}
void move_weights_of(const FactorRun& run, double keep, double rate) {
  run.dtype == ops::Storage::kFloat64 ? move<double>(run, keep, rate) : move<float>(run, keep, rate);
}

}  // namespace
}  // namespace trireme::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::optim {

HWY_EXPORT(row_squares_of);
HWY_EXPORT(add_column_squares_of);
HWY_EXPORT(step_squares_of);
HWY_EXPORT(move_weights_of);

RowSquares row_squares(const FactorRun& run) { return HWY_DYNAMIC_DISPATCH(row_squares_of)(run); }
void add_column_squares(const FactorRun& run) { HWY_DYNAMIC_DISPATCH(add_column_squares_of)(run); }
double step_squares(const FactorRun& run) { return HWY_DYNAMIC_DISPATCH(step_squares_of)(run); }
void move_weights(const FactorRun& run, double keep, double rate) {
  HWY_DYNAMIC_DISPATCH(move_weights_of)(run, keep, rate);
}

}  // namespace trireme::optim
#endif  // HWY_ONCE
