#include "trireme/data/dataset.h"

#include <algorithm>

namespace trireme::data {

void pad(SampleView out, size_t first) {
  std::ranges::fill(out.inputs.subspan(first), 0);
  std::ranges::fill(out.targets.subspan(first), kIgnoredTarget);
  std::ranges::fill(out.document_starts.subspan(first), static_cast<int64_t>(first));
}

}  // namespace trireme::data
