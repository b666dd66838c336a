#include "trireme/model/rotary_tables.h"

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/model/rotary_frequencies.h"
#include "trireme/ops/ops.h"

namespace trireme::model {

RotaryTables::RotaryTables(const ModelConfig& config, at::ScalarType state_dtype, const Parallel& parallel,
                           Blocks blocks)
    : rotary_dim_(config.rotary_dim()),
      max_positions_(config.max_position_embeddings),
      longest_sequence_(config.longest_sequence()),
      theta_(blocks == Blocks::windowed ? config.rope_local_theta : config.rope_theta),
      scaling_(blocks == Blocks::windowed ? RopeScaling{} : config.rope_scaling),
      dtype_(state_dtype),
      parallel_(parallel) {
  rotary_frequencies(theta_, rotary_dim_, scaling_);  // refuses wrong numbers before anything is computed
}

RotaryTables::Table RotaryTables::of(int64_t sequence, at::Device device) const {
  return table(parallel_, sequence, device);
}

RotaryTables::Table RotaryTables::whole(int64_t sequence, at::Device device) const {
  return table({}, sequence, device);
}

RotaryTables::Table RotaryTables::table(const Parallel& parallel, int64_t sequence, at::Device device) const {
  if (sequence > longest_sequence_)
    throw ShapeError("a sequence of " + std::to_string(sequence) + " tokens needs more than the model's " +
                     std::to_string(max_positions_) + " positions (max_position_embeddings)");
  const std::lock_guard lock(mutex_);
  Table& kept = tables_[{sequence, parallel.cp_size, device.is_cpu() ? -1 : int(device.index())}];
  if (kept.cosine.defined()) return kept;
  const Table table = filled(parallel, sequence);
  return kept = {table.cosine.to(device), table.sine.to(device)};
}

RotaryTables::Table RotaryTables::filled(const Parallel& parallel, int64_t sequence) const {
  const std::vector<int64_t> positions = context_positions(parallel, sequence);
  const auto rows = static_cast<int64_t>(positions.size());
  const at::Tensor cosine = at::empty({rows, rotary_dim_ / 2}, at::TensorOptions().dtype(dtype_)),
                   sine = at::empty_like(cosine);
  const std::vector<double> frequencies = rotary_frequencies(theta_, rotary_dim_, scaling_, sequence);
  const double attention_factor = rotary_attention_factor(scaling_);
  for (int64_t first = 0, last = 0; first < rows; first = last) {  // runs of positions that follow each other
    for (last = first + 1; last < rows && positions[last] == positions[last - 1] + 1; ++last) {
    }
    ops::rotary_table(cosine.narrow(0, first, last - first), sine.narrow(0, first, last - first), frequencies,
                      attention_factor, positions[first]);
  }
  return {cosine, sine};
}

}  // namespace trireme::model
