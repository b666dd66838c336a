#include "trireme/checkpoint/diff.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "trireme/base/crew.h"
#include "trireme/checkpoint/load.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kPieceElements = 1 << 17;  // 1 MiB of doubles

/// Sums over the pieces of one tensor.
struct Sums {
  double largest = 0, squares = 0, squares_a = 0;
  void add(std::span<const double> a, std::span<const double> b) {
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) {
        squares_a += std::isfinite(a[i]) ? a[i] * a[i] : 0;
        continue;
      }
      const double difference = std::abs(a[i] - b[i]);
      // std::max() would drop a NaN.
      largest = std::isnan(difference) || std::isnan(largest) ? std::numeric_limits<double>::quiet_NaN()
                                                              : std::max(largest, difference);
      squares += difference * difference;
      squares_a += a[i] * a[i];
    }
  }
};

void compare_values(const Checkpoint& a, const Checkpoint& b, TensorDiff& t) {
  const int64_t elements = a.tensor(t.name).elements;
  const bool same_dtype = t.dtype_a == t.dtype_b;
  const bool numbers = convertible(t.dtype_a, Dtype::f64) && convertible(t.dtype_b, Dtype::f64);
  const auto piece = std::clamp<int64_t>(elements, 1, kPieceElements);
  std::vector<double> values_a(piece), values_b(values_a.size());
  t.same_bytes = same_dtype;
  Sums sums;
  for (int64_t begin = 0; begin < elements; begin += piece) {
    const int64_t count = std::min(piece, elements - begin);
    const auto n = static_cast<size_t>(count);
    if (same_dtype) {  // bytes, because values may be equal in other bytes
      read_piece(a, {t.name, begin, begin + count, values_a.data(), t.dtype_a});
      read_piece(b, {t.name, begin, begin + count, values_b.data(), t.dtype_b});
      t.same_bytes &= std::memcmp(values_a.data(), values_b.data(), n * static_cast<size_t>(size_of(t.dtype_a))) == 0;
    }
    if (!numbers) continue;
    read_piece(a, {t.name, begin, begin + count, values_a.data(), Dtype::f64});
    read_piece(b, {t.name, begin, begin + count, values_b.data(), Dtype::f64});
    sums.add(std::span(values_a).first(n), std::span(values_b).first(n));
  }
  const auto n = static_cast<double>(std::max<int64_t>(elements, 1));
  t.max_difference = numbers ? sums.largest : t.same_bytes ? 0 : std::numeric_limits<double>::quiet_NaN();
  t.rms_difference = std::sqrt(sums.squares / n);
  t.rms = std::sqrt(sums.squares_a / n);
  t.kind = t.same_bytes ? TensorDiff::Kind::equal : TensorDiff::Kind::values;
}

std::vector<TensorDiff> pair_up(const Checkpoint& a, const Checkpoint& b) {
  using Kind = TensorDiff::Kind;
  std::vector<TensorDiff> tensors;
  for (const auto& [name, mine] : a.tensors) {
    TensorDiff t{.name = name, .kind = Kind::only_a, .dtype_a = mine.dtype, .shape_a = mine.shape};
    if (const auto other = b.tensors.find(name); other != b.tensors.end()) {
      t.dtype_b = other->second.dtype;
      t.shape_b = other->second.shape;
      t.kind = t.shape_a == t.shape_b ? Kind::values : Kind::shape;
    }
    tensors.push_back(std::move(t));
  }
  for (const auto& [name, other] : b.tensors)
    if (!a.has_tensor(name))
      tensors.push_back({.name = name, .kind = Kind::only_b, .dtype_b = other.dtype, .shape_b = other.shape});
  std::sort(tensors.begin(), tensors.end(), [](const auto& x, const auto& y) { return x.name < y.name; });
  return tensors;
}

}  // namespace

int64_t DiffReport::count(TensorDiff::Kind kind) const {
  return std::count_if(tensors.begin(), tensors.end(), [&](const TensorDiff& t) { return t.kind == kind; });
}

bool DiffReport::equal() const {
  return std::all_of(tensors.begin(), tensors.end(), [](const TensorDiff& t) { return t.same_bytes; });
}

DiffReport diff(const fs::path& path_a, const fs::path& path_b, int threads) {
  const Checkpoint a = open_checkpoint(path_a), b = open_checkpoint(path_b);
  DiffReport report{.tensors = pair_up(a, b)};
  std::atomic<size_t> next{0};
  base::Crew workers(static_cast<size_t>(threads), [&](size_t) {
    try {
      for (size_t i; (i = next++) < report.tensors.size();)
        if (report.tensors[i].kind == TensorDiff::Kind::values) compare_values(a, b, report.tensors[i]);
    } catch (...) {
      next = report.tensors.size();  // the others stop too
      throw;
    }
  });
  workers.join();
  return report;
}

}  // namespace trireme::checkpoint
