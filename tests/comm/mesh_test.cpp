#include "trireme/comm/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(const MeshSizes& sizes, int world_size) {
  try {
    ProcessMesh(sizes, world_size);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Mesh, NeighboursDifferInTheInnermostAxisFirst) {
  const ProcessMesh mesh({.pp = 2, .replicate = 1, .shard = 2, .cp = 1, .tp = 2}, 8);
  EXPECT_EQ(mesh.coordinates(0), (ProcessMesh::Coordinates{0, 0, 0, 0, 0}));
  EXPECT_EQ(mesh.coordinates(1), (ProcessMesh::Coordinates{0, 0, 0, 0, 1}));
  EXPECT_EQ(mesh.coordinates(2), (ProcessMesh::Coordinates{0, 0, 1, 0, 0}));
  EXPECT_EQ(mesh.coordinates(7), (ProcessMesh::Coordinates{1, 0, 1, 0, 1}));
  EXPECT_EQ(mesh.coordinate(6, Axis::shard), 1);
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(mesh.global_rank(mesh.coordinates(rank)), rank);
}

TEST(Mesh, GroupsFollowHosts) {
  // Two hosts of 4 ranks: tensor parallelism and the inner sharding stay inside one.
  const ProcessMesh mesh({.replicate = 2, .shard = 2, .tp = 2}, 8);
  EXPECT_THAT(mesh.group(5, {Axis::tp}), ElementsAre(4, 5));
  EXPECT_THAT(mesh.group(5, {Axis::shard}), ElementsAre(5, 7));
  EXPECT_THAT(mesh.group(5, {Axis::replicate}), ElementsAre(1, 5));
  EXPECT_THAT(mesh.group(5, {Axis::pp}), ElementsAre(5));
}

TEST(Mesh, GroupsAlongSeveralAxesAreInRankOrder) {
  const ProcessMesh mesh({.shard = 2, .cp = 2, .tp = 2}, 8);
  EXPECT_THAT(mesh.group(3, {Axis::shard, Axis::cp}), ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(mesh.group(3, {Axis::cp, Axis::shard}), ElementsAre(1, 3, 5, 7));
  EXPECT_EQ(mesh.group_rank(5, {Axis::shard, Axis::cp}), 2);
  EXPECT_EQ(mesh.size({Axis::shard, Axis::cp}), 4);
  EXPECT_THAT(mesh.groups({Axis::shard, Axis::cp}), ElementsAre(ElementsAre(0, 2, 4, 6), ElementsAre(1, 3, 5, 7)));
}

TEST(Mesh, EveryRankIsInOneGroupOfEachKind) {
  const ProcessMesh mesh({.pp = 2, .replicate = 3, .shard = 2, .cp = 1, .tp = 2}, 24);
  for (const auto axes :
       {std::initializer_list<Axis>{Axis::pp}, {Axis::replicate, Axis::tp}, {Axis::shard, Axis::cp}}) {
    std::vector<int> seen(24, 0);
    for (const auto& group : mesh.groups(axes)) {
      EXPECT_EQ(std::ssize(group), mesh.size(axes));
      for (size_t i = 0; i < group.size(); ++i) {
        ++seen[group[i]];
        EXPECT_EQ(mesh.group_rank(group[i], axes), static_cast<int>(i));
        EXPECT_EQ(mesh.group(group[i], axes), group);
      }
    }
    EXPECT_THAT(seen, ::testing::Each(1));
  }
}

TEST(Mesh, AutoTakesWhatIsLeft) {
  EXPECT_EQ(ProcessMesh({}, 6).size(Axis::shard), 6);
  EXPECT_EQ(ProcessMesh({.pp = 2, .shard = kAutoSize, .tp = 2}, 16).size(Axis::shard), 4);
  EXPECT_EQ(ProcessMesh({.replicate = kAutoSize, .shard = 2}, 6).size(Axis::replicate), 3);
}

TEST(Mesh, SizesThatDoNotFitAreRefusedWithTheProduct) {
  EXPECT_EQ(
      refusal({.replicate = 2, .shard = 3}, 4),
      "[mesh] pp 1 x replicate 2 x shard 3 x cp 1 x tp 1 = 6 is not the world size 4; use --mesh.shard 2, or start "
      "6 ranks");
  EXPECT_THAT(refusal({.replicate = 3, .shard = 1}, 4), HasSubstr("start 3 ranks, or choose sizes that divide 4"));
  EXPECT_THAT(refusal({.tp = 3}, 4), HasSubstr("= 3 x auto: 3 does not divide the world size 4"));
  EXPECT_THAT(refusal({.replicate = kAutoSize, .shard = kAutoSize}, 4), HasSubstr("more than one size is auto"));
  EXPECT_THAT(refusal({.shard = 1, .tp = -2}, 4), HasSubstr("tp is -2"));
  EXPECT_THAT(refusal({.pp = 1 << 20, .shard = 1 << 20}, 4), HasSubstr("is not the world size 4"));
}

TEST(Mesh, AxesAreKnownByNameAndExpertsAreReserved) {
  for (const Axis axis : {Axis::pp, Axis::replicate, Axis::shard, Axis::cp, Axis::tp})
    EXPECT_EQ(parse_axis(to_string(axis)), axis);
  EXPECT_THROW(parse_axis("dp"), UsageError);
  try {
    parse_axis("ep");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'ep' is reserved for experts"));
  }
}

TEST(Mesh, DescribesItsGroups) {
  EXPECT_EQ(ProcessMesh({.shard = 2, .tp = 2}, 4).describe(),
            "mesh pp 1 x replicate 1 x shard 2 x cp 1 x tp 2 = 4 ranks\n"
            "  shard         2   [0, 2] [1, 3]\n"
            "  tp            2   [0, 1] [2, 3]\n");
}

}  // namespace
}  // namespace trireme::comm
