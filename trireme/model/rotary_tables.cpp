#include "trireme/model/rotary_tables.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/model/rotary_frequencies.h"
#include "trireme/ops/ops.h"

namespace trireme::model {
namespace {

// Forward and backward passes of a pipeline's micro-batches alternate, and each may have its own.
constexpr size_t kKeptTables = 8;

}  // namespace

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

RotaryTables::Table RotaryTables::of(int64_t sequence, int64_t text, at::Device device) const {
  return table(parallel_, sequence, text, device);
}

RotaryTables::Table RotaryTables::whole(int64_t sequence, int64_t text, at::Device device) const {
  return table({}, sequence, text, device);
}

// The same number for texts of the same frequencies.
int64_t RotaryTables::alike(int64_t text) const {
  const auto original = static_cast<int64_t>(scaling_.original_max_position_embeddings);
  if (scaling_.type == RopeScaling::Type::dynamic) return std::max(text, original);
  return scaling_.type == RopeScaling::Type::longrope ? std::clamp(text, original, original + 1) : 0;
}

RotaryTables::Table RotaryTables::table(const Parallel& parallel, int64_t sequence, int64_t text,
                                        at::Device device) const {
  if (sequence > longest_sequence_)
    throw ShapeError("a sequence of " + std::to_string(sequence) + " tokens needs more than the model's " +
                     std::to_string(max_positions_) + " positions (max_position_embeddings)");
  const std::lock_guard lock(mutex_);
  Kept& kept = tables_[{sequence, alike(text), parallel.cp_size, device.is_cpu() ? -1 : int(device.index())}];
  kept.used = ++uses_;
  if (kept.table.cosine.defined()) return kept.table;
  const Table made = filled(parallel, sequence, alike(text));
  const Table table = kept.table = {made.cosine.to(device), made.sine.to(device)};
  if (tables_.size() > kKeptTables)
    tables_.erase(std::ranges::min_element(tables_, {}, [](const auto& entry) { return entry.second.used; }));
  return table;
}

RotaryTables::Table RotaryTables::filled(const Parallel& parallel, int64_t sequence, int64_t text) const {
  const std::vector<int64_t> positions = context_positions(parallel, sequence);
  const auto rows = static_cast<int64_t>(positions.size());
  const at::Tensor cosine = at::empty({rows, rotary_dim_ / 2}, at::TensorOptions().dtype(dtype_)),
                   sine = at::empty_like(cosine);
  const std::vector<double> frequencies = rotary_frequencies(theta_, rotary_dim_, scaling_, text);
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
