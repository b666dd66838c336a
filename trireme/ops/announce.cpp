#include "trireme/ops/announce.h"

#include <utility>

namespace trireme::ops {

namespace detail {

Hearing& hearing() {
  thread_local Hearing hearing;
  return hearing;
}

}  // namespace detail

bool has_listener() { return detail::hearing().listener != nullptr; }

Listener* listen(Listener* listener) { return std::exchange(detail::hearing().listener, listener); }

double bytes_of(std::initializer_list<const at::Tensor*> tensors) {
  double bytes = 0;
  for (const at::Tensor* t : tensors)
    if (t->defined()) bytes += double(t->numel()) * double(t->element_size());
  return bytes;
}

Operation row_operation(const char* name, at::ScalarType dtype, int64_t rows, int64_t width,
                        std::initializer_list<const at::Tensor*> touched) {
  return {.name = name, .dtype = dtype, .m = rows, .n = width, .k = 1, .bytes = bytes_of(touched)};
}

Operation product_operation(const char* name, const at::Tensor& c, const at::Tensor& a, int64_t n) {
  const int64_t m = a.size(0), k = a.size(1);
  const double of_b = double(n) * double(k) * double(a.element_size());
  return {.name = name,
          .dtype = a.scalar_type(),
          .m = m,
          .n = n,
          .k = k,
          .flops = 2 * double(m) * double(n) * double(k),
          .bytes = bytes_of({&c, &a}) + of_b};
}

}  // namespace trireme::ops
