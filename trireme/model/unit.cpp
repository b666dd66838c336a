#include "trireme/model/unit.h"

#include <c10/core/ScalarType.h>

namespace trireme::model {

int64_t TensorSpec::bytes() const {
  if (shape.empty()) return 0;
  int64_t n = static_cast<int64_t>(c10::elementSize(dtype));
  for (int64_t s : shape) n *= s;
  return n;
}

}  // namespace trireme::model
