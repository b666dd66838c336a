#include "trireme/settings/mesh_traffic.h"

#include "settings_test.h"

namespace trireme {
namespace {

struct TrafficCase {
  const char* arguments;
  int64_t ranks;
  std::vector<std::string> rows;  // "axis size: travels: per step"
};

TEST(MeshTraffic, EachAxisOfMoreThanOneRankHasARow) {
  const std::vector<TrafficCase> cases = {
      {"", 1, {}},
      {"strategy=no_shard", 2, {"replicate 2: gradients: 8 times"}},
      {"strategy=no_shard accumulation=local reduce=fast", 2, {"replicate 2: gradients: once"}},
      {"strategy=zero1", 2, {"shard 2: weights, whole gradients: weights once, gradients 8 times"}},
      {"strategy=zero2", 2, {"shard 2: weights, gradients of shards: weights once, gradients 8 times"}},
      {"strategy=full_shard",
       2,
       {"shard 2: weights, gradients of shards: weights up to 16 times (forward and backward), gradients 8 times"}},
      {"strategy=full_shard accumulation=local reduce=fast",
       2,
       {"shard 2: weights, gradients of shards: weights up to 16 times (forward and backward), gradients once"}},
      {"strategy=hybrid_zero2 mesh.replicate=2 reduce=fast",
       4,
       {"replicate 2: gradients of shards: once",
        "shard 2: weights, gradients of shards: weights once, gradients 4 times"}},
      {"strategy=hybrid_zero2 mesh.replicate=2",
       4,
       {"replicate 2: gradients of shards, then their sums: gradients 4 times, sums once",
        "shard 2: weights, gradients of shards: weights once, gradients 4 times"}},
      {"mesh.pp=2",
       2,
       {"pp 2: activations between stages, their gradients back: 1 boundary x 16 micro-batches, each way"}},
      {"mesh.pp=2 pipeline.schedule=breadth_first",
       2,
       {"pp 2: activations between stages, their gradients back: 3 boundaries x 16 micro-batches, each way"}},
      {"mesh.pp=2 pipeline.schedule=zb_v",
       2,
       {"pp 2: activations between stages, their gradients back: 2 boundaries x 16 micro-batches, each way"}},
      {"mesh.cp=3",
       3,
       {"cp 3: keys and values; weights, gradients over shard x cp: 2 hops a block, forward and backward of 16 "
        "micro-batches"}},
      {"mesh.cp=2 strategy=no_shard recompute=full",
       2,
       {"cp 2: keys and values; gradients: 1 hop a block, forward and backward of 16 micro-batches, again where "
        "recomputed"}},
      {"mesh.cp=2 strategy=no_shard mesh.context=ulysses train.global_batch_size=4",
       2,
       {"cp 2: queries, keys, values and attended tokens by heads; gradients: there and back a block, forward and "
        "backward of 1 micro-batch"}},
      {"mesh.tp=2", 2, {"tp 2: partial sums inside blocks: twice a block, forward and backward of 16 micro-batches"}},
      {"mesh.tp=2 mesh.sequence_parallel=true",
       2,
       {"tp 2: tokens gathered, partial sums scattered inside blocks: twice a block, forward and backward of 16 "
        "micro-batches"}},
  };
  for (const TrafficCase& c : cases) {
    std::vector<std::string> rows;
    for (const AxisTraffic& row : mesh_traffic(settings_from(c.arguments), c.ranks)) {
      rows.push_back(std::string(row.axis) + " " + std::to_string(row.size) + ": " + row.travels + ": " + row.per_step);
    }
    EXPECT_EQ(rows, c.rows) << c.arguments;
  }
}

TEST(MeshTraffic, RowsStandFromTheOuterAxisToTheInner) {
  std::string axes;
  const Settings settings = settings_from("strategy=hsdp mesh.pp=2 mesh.replicate=2 mesh.shard=2 mesh.cp=2 mesh.tp=2");
  for (const AxisTraffic& row : mesh_traffic(settings, 32)) axes += std::string(row.axis) + " ";
  EXPECT_EQ(axes, "pp replicate shard cp tp ");
}

}  // namespace
}  // namespace trireme
