#include "trireme/engine/quantized_group.h"

#include <algorithm>
#include <cstring>

#include "trireme/model/initialize.h"

namespace trireme::engine {

void fill_quantized(const GroupState& group, const TakeWhole& take) {
  auto* master = static_cast<uint8_t*>(group.master.data_ptr());
  std::memset(master, 0, static_cast<size_t>(group.held.size()));
  for (size_t i = 0; i < group.layout->tensors().size(); ++i) {
    const shard::FlatTensor& t = group.layout->tensors()[i];
    const int64_t begin = std::max(group.held.begin, t.offset), end = std::min(group.held.end, t.offset + t.numel);
    if (begin >= end) continue;
    const model::ParameterSpec& p = (*group.parameters)[i];
    const std::vector<uint8_t> record = model::quantized_record(p, *take(p));
    std::memcpy(master + begin - group.held.begin, record.data() + begin - t.offset, static_cast<size_t>(end - begin));
  }
}

void initialize_quantized(const GroupState& group, uint64_t seed) {
  const auto values = [seed](const model::ParameterSpec& p, int64_t begin, int64_t end, float* to) {
    model::ParameterSpec whole = p;
    whole.shape = p.whole_shape();
    whole.full_shape.clear();
    whole.pieces.clear();
    whole.split_dim = -1;
    model::initialize_held(to, whole, seed, begin, end);
  };
  fill_quantized(group, [&](const model::ParameterSpec& p) {
    return std::make_shared<const ops::Quantized>(model::quantize_values(p, values));
  });
}

}  // namespace trireme::engine
