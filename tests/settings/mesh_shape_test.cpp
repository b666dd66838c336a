#include "trireme/settings/derived.h"

#include "settings_test.h"

namespace trireme {
namespace {

struct ShapeCase {
  const char* arguments;  // separated by blanks
  int64_t ranks;
  MeshShape shape;
};

TEST(MeshShape, AutoAxesFollowTheStrategyAndTheMachines) {
  const std::vector<ShapeCase> cases = {
      {"strategy=full_shard", 4, {.shard = 4}},
      {"strategy=zero1", 4, {.shard = 4}},
      {"strategy=no_shard", 4, {.replicate = 4}},
      {"strategy=full_shard mesh.tp=2", 8, {.shard = 4, .tp = 2}},
      {"strategy=no_shard mesh.pp=2 mesh.cp=2", 8, {.pp = 2, .replicate = 2, .cp = 2}},
      {"strategy=full_shard mesh.shard=2", 4, {.replicate = 2, .shard = 2}},  // which validate() refuses
      {"strategy=hybrid_shard mesh.replicate=2", 8, {.replicate = 2, .shard = 4}},
      {"strategy=hybrid_shard mesh.shard=2", 8, {.replicate = 4, .shard = 2}},
      {"strategy=hybrid_shard mesh.shard=2 mesh.tp=2", 8, {.replicate = 2, .shard = 2, .tp = 2}},
      {"strategy=hybrid_shard devices=4 num_nodes=3", 12, {.replicate = 3, .shard = 4}},
      {"strategy=hybrid_zero2 devices=8 num_nodes=2 mesh.tp=2", 16, {.replicate = 2, .shard = 4, .tp = 2}},
      // A pipeline stage that is smaller than a machine is one copy.
      {"strategy=hybrid_shard devices=8 num_nodes=2 mesh.pp=4", 16, {.pp = 4, .shard = 4}},
      {"strategy=hybrid_shard devices=8 num_nodes=4 mesh.pp=2 mesh.cp=2",
       32,
       {.pp = 2, .replicate = 2, .shard = 4, .cp = 2}},
  };
  for (const ShapeCase& c : cases) EXPECT_EQ(mesh_shape(settings_from(c.arguments), c.ranks), c.shape) << c.arguments;
}

TEST(MeshShape, StagesOnARankAreTheSchedulesOwnUnlessGiven) {
  const std::vector<std::pair<const char*, int64_t>> cases = {
      {"mesh.pp=2", 1},
      {"mesh.pp=2 pipeline.schedule=gpipe", 1},
      {"mesh.pp=2 pipeline.schedule=zb_h1", 1},
      {"mesh.pp=2 pipeline.schedule=zb_v", 2},
      {"mesh.pp=2 pipeline.schedule=breadth_first", 2},
      {"mesh.pp=2 pipeline.schedule=interleaved_1f1b", 2},
      {"mesh.pp=2 pipeline.schedule=interleaved_1f1b pipeline.chunks=3", 3},
      {"mesh.pp=1 pipeline.schedule=interleaved_1f1b pipeline.chunks=3", 1},
  };
  for (const auto& [arguments, stages] : cases) {
    const Settings settings = settings_from(arguments);
    EXPECT_EQ(stages_per_rank(settings, mesh_shape(settings, 2)), stages) << arguments;
  }
}

}  // namespace
}  // namespace trireme
