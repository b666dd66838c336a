#include "trireme/model/dropout.h"

#include <ATen/core/Tensor.h>

#include "trireme/base/mix64.h"
#include "trireme/ops/ops.h"

namespace trireme::model {
namespace {

uint64_t splitmix64(uint64_t x) { return base::mix64(x + 0x9E3779B97F4A7C15u); }

}  // namespace

uint64_t dropout_step_key(uint64_t seed, int64_t step) {
  return splitmix64(splitmix64(seed) ^ static_cast<uint64_t>(step));
}

uint64_t dropout_module_key(std::string_view module) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const unsigned char c : module) h = (h ^ c) * 0x100000001b3u;
  return h;
}

void dropout_keys(const at::Tensor& keys, const Randomness& random, uint64_t module, const BatchShape& shape,
                  const Parallel& parallel) {
  const std::vector<int64_t> positions = context_positions(parallel, shape.sequence);
  auto* key = at::Tensor(keys).mutable_data_ptr<int32_t>();
  for (int64_t b = 0; b < shape.micro_batch; ++b)
    for (const int64_t position : positions) {
      const auto place = static_cast<uint64_t>(random.first_sequence + b) << 32 | static_cast<uint64_t>(position);
      *key++ = static_cast<int32_t>(splitmix64(splitmix64(random.step_key ^ place) ^ module));
    }
}

Dropout block_dropout(int64_t layer, const std::string& what, double p) {
  return {.p = p, .module = dropout_module_key("blocks." + std::to_string(layer) + "." + what)};
}

void drop(const Dropout& dropout, const at::Tensor& to, const at::Tensor& from, const UnitTensors& t,
          const Parallel& parallel, const at::Tensor& keys) {
  if (!dropout.drops(t.random)) {
    if (!to.is_same(from)) at::Tensor(to).copy_(from);
    return;
  }
  dropout_keys(keys, t.random, dropout.module, t.shape, parallel);
  const int64_t rows = from.size(0), first = rows == keys.size(0) ? 0 : rows * parallel.tp_rank;
  ops::dropout_forward(to, from, {.p = dropout.p, .keys = keys.narrow(0, first, rows)});
}

}  // namespace trireme::model
