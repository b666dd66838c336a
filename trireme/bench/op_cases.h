// What `trireme bench ops` times, as two tables: operations that move memory, and operations that compute. Each row
// says what the operation must move or compute at least, and how to call it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/engine/arena.h"
#include "trireme/model/config.h"

namespace trireme::bench {

/// The model's sizes. ops/ops.h says what each letter means.
struct Widths {
  int64_t D, F, H, K, d, V, S;
  at::ScalarType dtype;
  at::ScalarType wide() const;  ///< dtype of statistics: float32, or float64 if dtype is float64
  double E() const;  ///< bytes of an element
  double W() const;  ///< bytes of a statistic
  int64_t R() const { return (H + 2 * K) * d; }  ///< elements of a row of q, k and v together
};
Widths widths_of(const model::ModelConfig& config, at::ScalarType dtype);

/// Memory for tensors: every case uses the same pages, which are touched before anything is timed.
class Pool {
 public:
  explicit Pool(int64_t bytes) : memory_(bytes) {}
  void clear() { used_ = 0; }
  /// Values in [-1, 1], the same for the same sizes. Errors: InternalError when the pool is too small
  at::Tensor values(at::IntArrayRef sizes, at::ScalarType dtype);
  at::Tensor positive(at::IntArrayRef sizes, at::ScalarType dtype);  ///< in [0.5, 1.5]
  at::Tensor ids(int64_t count, int64_t below);  ///< int64 in [0, below)

 private:
  at::Tensor cut(at::IntArrayRef sizes, at::ScalarType dtype);
  engine::MappedMemory memory_;
  int64_t used_ = 0;
};

struct Calls {
  std::function<void()> call;
  std::function<void()> prepare = {};  ///< restores what `call` overwrites and reads again
};

/// The plain pass over memory that a case is compared with. kCopy: copies as many bytes. kInPlace: also updates
/// as many bytes in place, and takes the faster of the two. It is for cases that mostly overwrite what they read: a
/// copy also fetches the cache lines that it only overwrites. kRead: only reads; on one core slower than a copy.
enum class Access { kCopy, kInPlace, kRead };

/// `fixed_bytes` of cases that have none.
inline double nothing(const Widths&) { return 0; }

/// The least that an operation moves: each input is read once, and each output is written once. An update in place
/// counts as both.
struct MemoryCase {
  const char* name;
  double (*row_bytes)(const Widths& w);  ///< for each row
  double (*fixed_bytes)(const Widths& w);  ///< for each call
  Calls (*make)(Pool& pool, const Widths& w, int64_t rows);
  Access access = Access::kCopy;
  double (*position_bytes)(const Widths& w) = nullptr;  ///< for each position: tables with a row per position

  /// Bytes of one call over `rows`, which are whole sequences or part of one.
  double moved_bytes(const Widths& w, int64_t rows) const;
  /// The number of rows that move about `bytes`, at least 8. If this is more than one sequence, whole sequences.
  int64_t rows_for(const Widths& w, int64_t bytes) const;
};
std::span<const MemoryCase> memory_cases();

struct ArithmeticCase {
  std::string name, shape;
  double flops;  ///< a multiply-add counts 2; causal attention counts only what the mask leaves
  Calls calls;
};
struct ArithmeticRecipe {
  const char* name;
  ArithmeticCase (*make)(Pool& pool, const Widths& w, int64_t batch);
};
std::vector<ArithmeticRecipe> arithmetic_cases();

}  // namespace trireme::bench
