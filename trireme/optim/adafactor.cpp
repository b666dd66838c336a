#include "trireme/optim/adafactor.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "trireme/ops/parallel.h"
#include "trireme/ops/storage.h"
#include "trireme/optim/adafactor_kernels.h"
#include "trireme/optim/adamw8bit.h"

namespace trireme::optim {
namespace {

constexpr double kSmallestSquare = 1e-30, kSmallestScale = 1e-3, kClip = 1, kDecayPower = -0.8;

/// A tensor of the group's step: sums of its squares by row and column, in float64 and of the whole tensor. They become
/// the factors of the step. A vector is one row, and has only the sums of columns.
struct Factors {
  const DecaySegment* segment;
  int64_t rows, columns;
  double *weights, *steps;  ///< sums of squares of p and of u
  double *row, *column;  ///< row: null for a vector
  int64_t state;  ///< its first element in the state
  const model::ParameterSpec& parameter() const { return *segment->parameter; }
  /// The part that this rank holds, as rows.
  int64_t local_rows() const { return row == nullptr ? 1 : parameter().shape[0]; }
  int64_t local_columns() const { return (segment->end - segment->begin) / local_rows(); }
};

bool is_vector(const DecaySegment& s) { return s.parameter->whole_shape().size() < 2; }
int64_t rows_of(const DecaySegment& s) { return is_vector(s) ? 0 : s.parameter->whole_shape()[0]; }
int64_t columns_of(const DecaySegment& s) {
  const auto& shape = s.parameter->whole_shape();
  return c10::multiply_integers(shape.begin() + (is_vector(s) ? 0 : 1), shape.end());
}

/// Doubles that are added up over tensor-parallel ranks: first the sums of gradients and weights, then those of steps.
int64_t num_sums(std::span<const DecaySegment> segments) {
  int64_t count = 0;
  for (const DecaySegment& s : segments)
    if (s.parameter != nullptr) count += 1 + rows_of(s) + columns_of(s);
  return count;
}
int64_t num_parameters(std::span<const DecaySegment> segments) {
  return std::ranges::count_if(segments, [](const DecaySegment& s) { return s.parameter != nullptr; });
}

std::vector<Factors> lay_out(std::span<const DecaySegment> segments, double* sums) {
  double* steps = sums + num_sums(segments);
  std::vector<Factors> all;
  int64_t state = 0;
  for (const DecaySegment& s : segments) {
    if (s.parameter == nullptr) continue;
    const int64_t rows = rows_of(s), columns = columns_of(s);
    all.push_back({.segment = &s,
                   .rows = std::max<int64_t>(rows, 1),
                   .columns = columns,
                   .weights = sums,
                   .steps = steps++,
                   .row = rows > 0 ? sums + 1 : nullptr,
                   .column = sums + 1 + rows,
                   .state = state});
    sums += 1 + rows + columns;
    state += rows + columns;
  }
  return all;
}

/// Calls visit(at, local_row, row, column, count) for runs of elements of the local rows [first, last), each in one row
/// of the whole matrix: `at` is the first one's index in the span.
template <typename Visit>
void for_each_run(const Factors& f, int64_t first, int64_t last, const Visit& visit) {
  const int64_t width = f.local_columns();
  model::for_each_run(f.parameter(), first * width, last * width, [&](int64_t local, int64_t full, int64_t count) {
    for (int64_t done = 0; done < count;) {
      const int64_t row = (full + done) / f.columns, column = (full + done) % f.columns;
      const int64_t here = std::min(f.columns - column, count - done);
      visit(f.segment->begin + local + done, (local + done) / width, row, column, here);
      done += here;
    }
  });
}

template <typename T>
class Step {
 public:
  Step(const StepTensors& t, const OptimizerOptions& o, const AddParts& add_parts)
      : t_(t),
        o_(o),
        add_parts_(add_parts),
        master_(t.master.data_ptr<T>()),
        gradient_(t.gradient.data_ptr<T>()),
        state_(t.state[0].data_ptr<T>()),
        sums_(static_cast<double*>(t.work.mutable_data_ptr())) {}

  void run(std::span<const DecaySegment> segments) {
    const int64_t first = num_sums(segments), second = num_parameters(segments);
    std::fill(sums_, sums_ + first + second, 0.0);
    const std::vector<Factors> all = lay_out(segments, sums_);
    for (const Factors& f : all)
      if (f.parameter().counted) sum_squares(f);
    add(0, first);
    for (const Factors& f : all) average(f);
    for (const Factors& f : all)
      if (f.parameter().counted) sum_steps(f);
    add(first, second);
    for (const Factors& f : all) move(f);
  }

 private:
  void add(int64_t begin, int64_t count) const {
    add_parts_(at::from_blob(sums_ + begin, {count}, at::TensorOptions().dtype(at::kDouble)));
  }

  FactorRun run_at(int64_t at, double row, double* column, int64_t count) const {
    return {.dtype = std::is_same_v<T, double> ? ops::Storage::kFloat64 : ops::Storage::kFloat32,
            .master = master_ + at,
            .gradient = gradient_ + at,
            .row = row * o_.gradient_scale,
            .column = column,
            .count = count};
  }
  FactorRun step_at(const Factors& f, int64_t at, int64_t row, int64_t column, int64_t count) const {
    return run_at(at, f.row == nullptr ? 1 : f.row[row], f.column + column, count);
  }

  template <typename Body>
  static void for_rows(const Factors& f, const Body& body) {
    ops::parallel_rows(f.local_rows(), ops::row_grain(f.local_columns()), body);
  }

  /// Adds up what visit(local_row) gives for each row: side by side, then in the order of rows.
  template <typename Visit>
  static double sum_rows(const Factors& f, const Visit& visit) {
    double* partials = ops::thread_scratch<Factors, double>(f.local_rows());
    for_rows(f, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) partials[row] = visit(row);
    });
    double sum = 0;
    for (int64_t row = 0; row < f.local_rows(); ++row) sum += partials[row];
    return sum;
  }

  // Each row once, for its own sum and that of the weights; then all rows for pieces of the columns.
  void sum_squares(const Factors& f) const {
    const double scale = o_.gradient_scale * o_.gradient_scale;
    *f.weights = sum_rows(f, [&](int64_t local_row) {
      double weights = 0;
      for_each_run(f, local_row, local_row + 1, [&](int64_t at, int64_t, int64_t row, int64_t, int64_t count) {
        const RowSquares squares = row_squares(run_at(at, 1, nullptr, count));
        if (f.row != nullptr) f.row[row] += squares.gradient * scale;
        weights += squares.weights;
      });
      return weights;
    });
    ops::parallel_rows(f.columns, std::max(kColumns, ops::row_grain(f.local_rows())), [&](int64_t first, int64_t last) {
      for_each_run(f, 0, f.local_rows(), [&](int64_t at, int64_t, int64_t, int64_t column, int64_t count) {
        const int64_t begin = std::max(first, column), end = std::min(last, column + count);
        if (begin < end) add_column_squares(run_at(at + begin - column, 1, f.column + begin, end - begin));
      });
    });
  }

  // Updates the moments, and puts the factors of the step in the place of the sums.
  void average(const Factors& f) const {
    const double keep = 1 - std::pow(static_cast<double>(step_of(*f.segment, o_)), kDecayPower);
    const auto mix = [&](T& moment, double sum, int64_t count) {
      const double mean = sum / static_cast<double>(count) + kSmallestSquare;
      moment = static_cast<T>(keep * static_cast<double>(moment) + (1 - keep) * mean);
      return static_cast<double>(moment);
    };
    T* state = state_ + f.state;
    if (f.row != nullptr) {
      double mean = 0;
      for (int64_t r = 0; r < f.rows; ++r) mean += f.row[r] = mix(state[r], f.row[r], f.columns);
      mean /= static_cast<double>(f.rows);
      for (int64_t r = 0; r < f.rows; ++r) f.row[r] = 1 / std::sqrt(f.row[r] / mean);
      state += f.rows;
    }
    for (int64_t c = 0; c < f.columns; ++c) f.column[c] = 1 / std::sqrt(mix(state[c], f.column[c], f.rows));
  }

  void sum_steps(const Factors& f) const {
    *f.steps = sum_rows(f, [&](int64_t local_row) {
      double sum = 0;
      for_each_run(f, local_row, local_row + 1, [&](int64_t at, int64_t, int64_t row, int64_t column, int64_t count) {
        sum += step_squares(step_at(f, at, row, column, count));
      });
      return sum;
    });
  }

  void move(const Factors& f) const {
    const auto elements = static_cast<double>(f.rows * f.columns);
    double lr = o_.lr * f.segment->rate;
    if (o_.relative_step) lr = f.segment->rate * relative_rate(o_, step_of(*f.segment, o_));
    if (o_.scale_parameter) lr *= std::max(kSmallestScale, std::sqrt(*f.weights / elements));
    const double keep = f.segment->decay ? 1 - lr * f.segment->weight_decay.value_or(o_.weight_decay) : 1;
    const double rate = lr / std::max(1.0, std::sqrt(*f.steps / elements) / kClip);
    for_rows(f, [&](int64_t first, int64_t last) {
      for_each_run(f, first, last, [&](int64_t at, int64_t, int64_t row, int64_t column, int64_t count) {
        move_weights(step_at(f, at, row, column, count), keep, rate);
      });
    });
    if (!t_.compute.defined()) return;
    const int64_t begin = f.segment->begin, size = f.segment->end - begin;
    t_.compute.narrow(0, begin, size).copy_(t_.master.narrow(0, begin, size));
  }

  static constexpr int64_t kColumns = 512;  ///< the fewest columns that are worth another thread

  const StepTensors& t_;
  const OptimizerOptions& o_;
  const AddParts& add_parts_;
  T* master_;
  const T* gradient_;
  T* state_;
  double* sums_;
};

}  // namespace

std::vector<WholeState> whole_state(Rule rule, std::span<const int64_t> shape) {
  if (rule == Rule::adamw8bit) return adamw8bit_state(shape);
  if (rule != Rule::adafactor) return {};
  if (shape.size() < 2) return {{"exp_avg_sq", {shape.begin(), shape.end()}}};
  return {{"exp_avg_sq_row", {shape.begin(), shape.end() - 1}}, {"exp_avg_sq_col", {shape.back()}}};
}

std::vector<int64_t> state_shape(std::string_view name, const std::vector<int64_t>& parameter) {
  for (const Rule rule : {Rule::adafactor, Rule::adamw8bit})
    for (const WholeState& state : whole_state(rule, parameter))
      if (name.ends_with("." + state.name)) return state.shape;
  return parameter;
}

int64_t whole_state_elements(Rule rule, std::span<const DecaySegment> segments) {
  int64_t elements = 0;
  for (const DecaySegment& s : segments)
    if (s.parameter != nullptr)
      for (const WholeState& state : whole_state(rule, s.parameter->whole_shape()))
        elements += state.floats(*s.parameter);
  return elements;
}

double relative_rate(const OptimizerOptions& options, int64_t step) {
  const auto number = static_cast<double>(step);
  return std::min(options.warmup_init ? 1e-6 * number : 1e-2, 1 / std::sqrt(number));
}

void step_adafactor(const StepTensors& t, std::span<const DecaySegment> segments, const OptimizerOptions& options,
                    const AddParts& add_parts) {
  if (num_parameters(segments) == 0) return;  // the rank owns nothing of the group
  if (t.master.scalar_type() == at::kDouble)
    Step<double>(t, options, add_parts).run(segments);
  else
    Step<float>(t, options, add_parts).run(segments);
}

int64_t adafactor_work_bytes(std::span<const DecaySegment> segments) {
  return 8 * (num_sums(segments) + num_parameters(segments));
}

std::vector<model::TrafficRow> adafactor_traffic(std::span<const DecaySegment> segments) {
  if (num_parameters(segments) == 0) return {};
  const auto row = [](int64_t elements) {
    return model::TrafficRow{comm::UnitAxis::tp, comm::Operation::all_reduce, at::kDouble, elements};
  };
  return {row(num_sums(segments)), row(num_parameters(segments))};
}

}  // namespace trireme::optim
