// A small step to make schedules of: an embedding, `blocks` blocks and a head.
#pragma once

#include "trireme/schedule/passes.h"

namespace trireme::schedule {

inline StepDeclaration example_step(int blocks = 3, int ranks = 2, bool shard = true, int micro_batches = 2) {
  StepDeclaration d;
  d.num_ranks = ranks;
  d.shard = shard;
  d.num_micro_batches = micro_batches;
  d.tokens_per_micro_batch = 128;
  d.compute_bytes = 2;
  d.state_bytes = 4;
  const auto group = [&](const std::string& name, int64_t numel) {
    d.groups.push_back({name, numel, shard && ranks > 1 ? numel / ranks : numel});
    return static_cast<int>(d.groups.size()) - 1;
  };
  d.units.push_back({.name = "embedding",
                     .groups = {group("embedding", 8 * 4096)},
                     .output_bytes = 8192,
                     .backward_work = {{"order", 1024}},
                     .reads_parameters_in_backward = false});
  for (int b = 0; b < blocks; ++b)
    d.units.push_back({.name = "block " + std::to_string(b),
                       .groups = {group("block " + std::to_string(b), 16 * 4096)},
                       .output_bytes = 8192,
                       .saved = {{"qkv", 24576}, {"hidden", 40960}, {"rstd", 512}},
                       .forward_work = {{"normed", 8192}, {"activated", 20480}},
                       .backward_work = {{"d_normed", 8192}, {"d_qkv", 24576}}});
  d.units.push_back({.name = "head",
                     .groups = {group("head", 8 * 4096)},
                     .forward_work = {{"logits", 65536}},
                     .backward_work = {{"logits", 65536}},
                     .backward_includes_forward = true});
  return d;
}

}  // namespace trireme::schedule
