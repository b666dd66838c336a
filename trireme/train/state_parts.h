// Parts of parameters in a rank's state, as files and other ranks know them: by name, and by place in the whole
// parameter.
#pragma once

#include <algorithm>
#include <cstdint>

#include "trireme/engine/engine.h"
#include "trireme/model/parameter.h"

namespace trireme::train {

/// Calls visit(spec, begin, end, at) for the parts of a group's parameters in `range` that are contiguous in the whole
/// parameter: elements [begin, end) of it start at index `at` of the tensors that hold `group.held`. Records of
/// matrices in a few bits have no such parts.
template <typename Visit>
void for_each_part(const engine::GroupState& group, const shard::Range& range, Visit visit) {
  if (group.storage->quantized != base::BlockFormat::none) return;
  for (size_t i = 0; i < group.layout->tensors().size(); ++i) {
    const shard::FlatTensor& t = group.layout->tensors()[i];
    const model::ParameterSpec& spec = (*group.parameters)[i];
    const int64_t begin = std::max(range.begin, t.offset), end = std::min(range.end, t.offset + t.numel);
    if (begin >= end) continue;
    model::for_each_run(spec, begin - t.offset, end - t.offset, [&](int64_t local, int64_t full, int64_t count) {
      visit(spec, full, full + count, t.offset + local - group.held.begin);
    });
  }
}

}  // namespace trireme::train
