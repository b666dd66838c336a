// Settings for how ranks divide a step: the strategy, the order of sums, the mesh.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "trireme/config/declaration.h"
#include "trireme/model/settings.h"
#include "trireme/schedule/settings.h"

namespace trireme::plan {

/// What data-parallel ranks divide. Hybrid strategies divide inside each of several copies.
enum class Strategy {
  no_shard,            ///< nothing (DDP)
  zero1,               ///< optimizer state
  shard_grad_op,       ///< optimizer state and gradients (ZeRO-2)
  full_shard,          ///< optimizer state, gradients and weights (ZeRO-3, FSDP)
  hybrid_shard,        ///< full_shard inside each of several copies (HSDP)
  hybrid_shard_zero2,  ///< shard_grad_op inside each of several copies
};
std::span<const config::Choice<Strategy>> choices_of(Strategy);

enum class Reduce { fast, ordered };
std::span<const config::Choice<Reduce>> choices_of(Reduce);

enum class Accumulation { sharded, local };
std::span<const config::Choice<Accumulation>> choices_of(Accumulation);

/// True for the strategies that shard inside each of several copies.
bool is_hybrid(Strategy strategy);
/// The strategy inside one copy: full_shard for hybrid_shard. Returns other strategies unchanged.
Strategy on_one_copy(Strategy strategy);

struct StrategySettings {
  Strategy strategy = Strategy::full_shard;
  Reduce reduce = Reduce::ordered;
  Accumulation accumulation = Accumulation::sharded;
  bool operator==(const StrategySettings&) const = default;
};
config::Section section(StrategySettings& settings);

/// Ranks along each axis, outer to inner. Empty sizes follow from the strategy and the number of ranks.
struct MeshSettings {
  std::optional<int64_t> pp, replicate, shard, cp, tp;
  bool sequence_parallel = false;
  model::Context context = model::Context::ring;
  bool operator==(const MeshSettings&) const = default;
};
config::Section section(MeshSettings& settings);

// Rules that both the check of settings and check_request() use. They return what is wrong, or nothing.

/// accumulation `local` needs reduce `fast`, because it changes the order of sums.
std::optional<config::Refusal> check_accumulation(Accumulation accumulation, Reduce reduce);

/// Sums of gradients in two bytes (`narrow_sums`) need parts of two bytes: units that add up a step's gradients, and
/// slots in the state dtype (`wide_slots`), have four.
std::optional<config::Refusal> check_gradient_dtypes(bool narrow_sums, bool wide_slots, Accumulation accumulation);

/// What ranks share cannot leave them: `shards` ranks divide the state of one copy, `ranks` reduce gradients together.
std::optional<config::Refusal> check_offload(Strategy strategy, int64_t shards, int64_t ranks,
                                             const schedule::OffloadSettings& offload);

/// `tokens`: tokens of a micro-batch on each context-parallel rank.
std::optional<config::Refusal> check_sequence_parallel(int64_t tokens, int64_t tp);

}  // namespace trireme::plan
