// Operations say what they do, in numbers, to whoever listens: to a listener that measures them (`trireme bench
// calibrate`), or to one that only counts (costs/recorded_work.h). Without a listener this costs one read of a
// thread-local pointer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>

namespace trireme::ops {

struct Operation {
  const char* name = "";  ///< "product", "attention_forward", "rms_norm_backward"
  at::ScalarType dtype = at::kFloat;
  int64_t m = 0, n = 0, k = 0;  ///< product: [m,k] times [k,n]; attention: queries of a batch row, width of all query
                                ///< heads, head dim; others: rows and columns, k = 1
  double flops = 0;  ///< of products and attention, as a causal mask or a window leaves them
  double bytes = 0;  ///< that it has to read and to write
};

class Listener {
 public:
  virtual ~Listener() = default;
  /// Called before an operation that no other announced operation contains. False: it is not to run.
  virtual bool begins(const Operation& operation) = 0;
  virtual void ends() = 0;
};

/// Makes `listener` the one of this thread; null: none. Returns the one before.
Listener* listen(Listener* listener);

bool has_listener();  ///< of this thread

namespace detail {
struct Hearing {
  Listener* listener = nullptr;
  bool inside = false;  ///< an announced operation
};
Hearing& hearing();
}  // namespace detail

/// Bytes of the tensors that are defined.
double bytes_of(std::initializer_list<const at::Tensor*> tensors);

/// An operation on `rows` rows of `width` elements that has to move the tensors in `touched`, one entry for each time.
Operation row_operation(const char* name, at::ScalarType dtype, int64_t rows, int64_t width,
                        std::initializer_list<const at::Tensor*> touched);
/// A product a [m,k] times [k,n] into c.
Operation product_operation(const char* name, const at::Tensor& c, const at::Tensor& a, int64_t n);

/// Announces the operation that `describe` returns, until the end of its scope. If skipped(), the caller returns.
class Announced {
 public:
  template <class Describe>
  explicit Announced(const Describe& describe) {
    detail::Hearing& hearing = detail::hearing();
    if (hearing.listener == nullptr || hearing.inside) return;
    heard_ = hearing.inside = true;
    skipped_ = !hearing.listener->begins(describe());
  }
  ~Announced() {
    if (!heard_) return;
    detail::hearing().inside = false;
    if (detail::hearing().listener != nullptr) detail::hearing().listener->ends();
  }
  Announced(const Announced&) = delete;
  Announced& operator=(const Announced&) = delete;
  bool skipped() const { return skipped_; }

 private:
  bool heard_ = false, skipped_ = false;
};

}  // namespace trireme::ops
