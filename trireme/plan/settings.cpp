#include "trireme/plan/settings.h"

#include <fmt/format.h>

#include "trireme/base/text.h"
#include "trireme/config/problems.h"

namespace trireme::plan {

using config::Resumed;
using config::Rules;

// The aliases are words of DeepSpeed, PyTorch FSDP, Accelerate, LitGPT and Thunder.
std::span<const config::Choice<Strategy>> choices_of(Strategy) {
  static const std::vector<config::Choice<Strategy>> kTable = {
      {Strategy::no_shard, "no_shard", {"ddp", "zero0", "multi_gpu"}},
      {Strategy::zero1, "zero1", {}},
      {Strategy::shard_grad_op, "shard_grad_op", {"zero2"}},
      {Strategy::full_shard, "full_shard", {"zero3", "fsdp"}},
      {Strategy::hybrid_shard, "hybrid_shard", {"hsdp"}},
      {Strategy::hybrid_shard_zero2, "hybrid_shard_zero2", {"_hybrid_shard_zero2", "hybrid_zero2"}}};
  return kTable;
}

std::span<const config::Choice<Reduce>> choices_of(Reduce) {
  static const std::vector<config::Choice<Reduce>> kTable = {{Reduce::ordered, "ordered", {}},
                                                             {Reduce::fast, "fast", {}}};
  return kTable;
}

std::span<const config::Choice<Accumulation>> choices_of(Accumulation) {
  static const std::vector<config::Choice<Accumulation>> kTable = {{Accumulation::sharded, "sharded", {}},
                                                                   {Accumulation::local, "local", {"no_sync"}}};
  return kTable;
}

bool is_hybrid(Strategy strategy) { return on_one_copy(strategy) != strategy; }

Strategy on_one_copy(Strategy strategy) {
  if (strategy == Strategy::hybrid_shard) return Strategy::full_shard;
  return strategy == Strategy::hybrid_shard_zero2 ? Strategy::shard_grad_op : strategy;
}

std::optional<config::Refusal> check_accumulation(Accumulation accumulation, Reduce reduce) {
  if (accumulation == Accumulation::sharded || reduce == Reduce::fast) return std::nullopt;
  return config::Refusal{
      "accumulation local sums each rank's micro-batches first, but reduce ordered sums all micro-batches in their "
      "order",
      "set reduce fast, or accumulation sharded"};
}

std::optional<config::Refusal> check_gradient_dtypes(bool narrow_sums, bool wide_slots, Accumulation accumulation) {
  if (!narrow_sums) return std::nullopt;
  if (accumulation == Accumulation::local)
    return config::Refusal{"accumulation local sums gradients in fp32, but precision.gradients sums them in two bytes",
                           "set accumulation sharded, or precision.gradients fp32"};
  if (wide_slots)
    return config::Refusal{"gradients that travel in fp32 are not summed in two bytes",
                           "precision.reduce fp32 needs precision.gradients fp32"};
  return std::nullopt;
}

std::optional<config::Refusal> check_offload(Strategy strategy, int64_t shards, int64_t ranks,
                                             const schedule::OffloadSettings& offload) {
  const Strategy inside = on_one_copy(strategy);
  const bool gathered_once = shards > 1 && (inside == Strategy::zero1 || inside == Strategy::shard_grad_op);
  if (gathered_once && offload.parameters != schedule::Tier::none)
    return config::Refusal{
        fmt::format("offload.parameters moves a rank's own weights, but with strategy {} the ranks of a host share "
                    "whole weights",
                    config::name_of(strategy)),
        "set strategy full_shard, or leave offload.parameters out"};
  const bool whole = strategy == Strategy::no_shard || strategy == Strategy::zero1 || shards == 1;
  if (whole && ranks > 1 && offload.gradients != schedule::Tier::none)
    return config::Refusal{
        fmt::format("offload.gradients moves a rank's own sums of gradients, but with strategy {} {} ranks share them",
                    config::name_of(strategy), ranks),
        "set strategy full_shard or shard_grad_op, or leave offload.gradients out"};
  return std::nullopt;
}

std::optional<config::Refusal> check_sequence_parallel(int64_t tokens, int64_t tp) {
  if (tokens % tp == 0) return std::nullopt;
  return config::Refusal{fmt::format("mesh.sequence_parallel cannot share the {} tokens of a micro-batch among {}",
                                     tokens, base::plural(tp, "rank")),
                         "train.micro_batch_size x train.max_seq_length / mesh.cp must be a multiple of mesh.tp"};
}

config::Section section(StrategySettings& s) {
  return {
      .name = "",
      .title = "the whole run",
      .rows = {{"strategy", &s.strategy,
                "what ranks divide among them: nothing (no_shard), optimizer state (zero1), also gradients "
                "(shard_grad_op), also weights (full_shard); hybrid_shard is full_shard, and hybrid_shard_zero2 is "
                "shard_grad_op, inside each of mesh.replicate copies"},
               {"reduce", &s.reduce,
                "order of sums over ranks: ordered gives the same bits on any number of data-parallel ranks; fast sums "
                "gradients inside each of mesh.replicate copies first, and over the copies once a step; it also allows "
                "accumulation local",
                Rules{.resumed = Resumed::learned}},
               {"accumulation", &s.accumulation,
                "how the gradients of a step's micro-batches are summed: sharded reduces them over ranks after each "
                "micro-batch; local sums them on each rank, as whole gradients in fp32, and reduces once a step; local "
                "needs reduce fast",
                Rules{.resumed = Resumed::learned}}},
      .others = {{{"no_sync"}, "gradients stay on their rank until a step's last micro-batch with accumulation local"},
                 {{"zero_stage"}, "sharding is strategy: no_shard, zero1, zero2 or zero3"},
                 {{"sharding_strategy"},
                  "sharding is strategy: no_shard, zero1, shard_grad_op, full_shard or hybrid_shard"},
                 {{"fsdp"}, "FSDP is strategy full_shard, shard_grad_op, hybrid_shard or hybrid_shard_zero2"},
                 {{"ddp"}, "DDP is strategy no_shard"}},
      .check = [&s](config::Problems& problems) { problems.add_if(check_accumulation(s.accumulation, s.reduce)); }};
}

config::Section section(MeshSettings& s) {
  const auto axis = [](std::string_view left_to_choose, std::string_view example) {
    return Rules{.unit = "ranks",
                 .at_least = 1,
                 .at_most = 100'000,
                 .absent = "auto",
                 .when_absent = left_to_choose,
                 .example = example};
  };
  return {
      .name = "mesh",
      .title = "ranks along each axis, outer to inner",
      .rows =
          {{"mesh.pp", &s.pp, "pipeline stages", axis("1", "2")},
           {"mesh.replicate", &s.replicate, "copies of the weights",
            axis("the rest for no_shard and hybrid strategies, else 1", "2")},
           {"mesh.shard", &s.shard, "ranks that share one copy of the weights",
            axis("1 for no_shard, one machine's ranks for hybrid strategies, else the rest", "2")},
           {"mesh.cp", &s.cp, "ranks that share one sequence", axis("1", "2")},
           {"mesh.tp", &s.tp, "ranks that share each matrix product", axis("1", "2")},
           {"mesh.sequence_parallel", &s.sequence_parallel,
            "the mesh.tp ranks also share the tokens between matrix products: less memory, a quarter more bytes sent"},
           {"mesh.context", &s.context,
            "how mesh.cp ranks attend to each other's tokens: keys and values travel around the ranks (ring), or "
            "ranks exchange tokens for heads (ulysses)"}},
      .others = {
          {{"data_parallel_replicate_degree"}, "copies of the weights are mesh.replicate"},
          {{"data_parallel_shard_degree"}, "ranks that share one copy of the weights are mesh.shard"},
          {{"tensor_parallel_size", "tensor_parallel_degree", "tensor_model_parallel_size", "model_parallel_size"},
           "ranks that share a matrix product are mesh.tp"},
          {{"pipeline_parallel_size", "pipeline_parallel_degree", "pipeline_model_parallel_size", "pipe_parallel_size"},
           "pipeline stages are mesh.pp"},
          {{"context_parallel_size", "context_parallel_degree"}, "ranks that share one sequence are mesh.cp"},
          {{"ulysses_sequence_parallel_size"},
           "ranks that share one sequence are mesh.cp, exchanging heads for tokens is mesh.context ulysses"},
          {{"dp"}, "copies of the weights are mesh.replicate, ranks that share one copy mesh.shard"},
          {{"ep"},
           "the axis ep is reserved for experts, which no model here has; there are mesh.pp, mesh.replicate, "
           "mesh.shard, mesh.cp and mesh.tp",
           true},
          {{"expert_parallel_size"},
           "the axis ep is reserved for experts, which no model here has; mesh.shard divides weights",
           true}}};
}

}  // namespace trireme::plan
