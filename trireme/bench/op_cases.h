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

/// The letters of ops/ops.h.
struct Widths {
  int64_t D, F, H, K, d, V, S;
  at::ScalarType dtype;
  at::ScalarType wide() const;  ///< of statistics
  double E() const;  ///< bytes of an element
  double W() const;  ///< bytes of a statistic
  int64_t R() const { return (H + 2 * K) * d; }
};
Widths widths_of(const model::ModelConfig& config, at::ScalarType dtype);

/// Memory that tensors are cut from: the same pages for every case, touched before anything is timed.
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
  std::function<void()> prepare = {};  ///< restores what `call` overwrites, where its next call reads it
};

/// What a case is measured by: a copy of as many bytes; a pass in place, where most of it overwrites what it reads and
/// no line is fetched only to be overwritten; or a pass that only reads, which one core does more slowly than a copy.
enum class Access { kCopy, kInPlace, kRead };

/// Of a case without fixed bytes.
inline double nothing(const Widths&) { return 0; }

/// Each input is read once and each output written once; what is updated in place counts as both.
struct MemoryCase {
  const char* name;
  double (*row_bytes)(const Widths& w);
  double (*fixed_bytes)(const Widths& w);
  Calls (*make)(Pool& pool, const Widths& w, int64_t rows);
  Access access = Access::kCopy;
  double (*position_bytes)(const Widths& w) = nullptr;  ///< of tables with a row for each position of a sequence

  /// By one call over whole sequences, or over part of one.
  double moved_bytes(const Widths& w, int64_t rows) const;
  /// The rows that move about `bytes`, at least 8: whole sequences where there are some, for operations that count
  /// positions.
  int64_t rows_for(const Widths& w, int64_t bytes) const;
};
std::vector<MemoryCase> memory_cases();

struct ArithmeticCase {
  std::string name, shape;
  double flops;  ///< a multiply-add counts 2; of attention, only what a causal mask leaves
  Calls calls;
};
struct ArithmeticRecipe {
  const char* name;
  ArithmeticCase (*make)(Pool& pool, const Widths& w, int64_t batch);
};
std::vector<ArithmeticRecipe> arithmetic_cases();

/// Parts of memory_cases().
std::span<const MemoryCase> norm_cases();
std::span<const MemoryCase> elementwise_cases();
std::span<const MemoryCase> vocabulary_cases();

}  // namespace trireme::bench
