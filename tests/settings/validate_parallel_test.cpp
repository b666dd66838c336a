#include "trireme/settings/validate.h"

#include "settings_test.h"

namespace trireme {
namespace {

using testing::HasSubstr;

struct Refused {
  const char* arguments;
  int64_t ranks;
  std::string text;
};

TEST(ValidateParallel, EveryCombinationThatCannotWorkIsRefusedWithAWayOut) {
  const std::vector<Refused> cases = {
      // The mesh and the ranks.
      {"mesh.shard=4 mesh.replicate=1", 2,
       "error: a mesh of pp 1 x replicate 1 x shard 4 x cp 1 x tp 1 is 4 ranks, but 2 ranks start\n"
       "  set devices to the product, or leave mesh.replicate and mesh.shard at auto"},
      {"mesh.tp=3", 4,
       "error: mesh.pp 1 x mesh.cp 1 x mesh.tp 3 takes a multiple of 3 ranks, but 4 ranks start\n"
       "  start 3 or 6 ranks, or change these sizes"},
      {"mesh.pp=2 mesh.cp=2 mesh.tp=2", 4, "start 8 ranks, or change these sizes"},
      {"mesh.tp=3 mesh.shard=1", 4, "tp 3 is 3 ranks, but 4 ranks start"},
      {"strategy=no_shard mesh.replicate=2", 4, "is 2 ranks, but 4 ranks start"},
      // The strategy and the mesh.
      {"strategy=no_shard mesh.shard=2", 4,
       "error: no_shard keeps all weights on every rank, but mesh.shard is 2\n"
       "  take strategy full_shard, or mesh.replicate instead of mesh.shard"},
      {"strategy=full_shard mesh.replicate=2", 4,
       "error: full_shard keeps one copy of the state over all ranks, but mesh.replicate is 2\n"
       "  take strategy hybrid_shard, or leave mesh.replicate and mesh.shard at auto"},
      {"strategy=full_shard mesh.shard=2", 4, "take strategy hybrid_shard, or leave"},
      {"strategy=zero1 mesh.replicate=2", 4, "error: zero1 keeps one copy of the state"},
      {"strategy=zero1 mesh.replicate=2", 4, "take strategy hybrid_shard_zero2, or leave"},
      {"strategy=zero2 mesh.replicate=2", 4, "error: shard_grad_op keeps one copy of the state"},
      {"strategy=zero2 mesh.replicate=2", 4, "take strategy hybrid_shard_zero2, or leave"},
      {"strategy=hybrid_shard", 4,
       "error: hybrid_shard on one machine cannot tell how many copies of the weights to keep\n"
       "  give mesh.replicate, for instance 2, or mesh.shard; full_shard keeps one copy"},
      {"strategy=hybrid_zero2", 4, "mesh.shard; shard_grad_op keeps one copy"},
      {"strategy=hybrid_shard mesh.shard=4", 4,
       "error: hybrid_shard keeps several copies of the weights, but mesh.replicate comes to 1\n"
       "  take strategy full_shard, or a mesh.replicate above 1"},
      {"strategy=hybrid_shard mesh.replicate=1", 4, "mesh.replicate comes to 1"},
      {"strategy=hybrid_shard num_nodes=2 devices=4 mesh.pp=2", 8, "mesh.replicate comes to 1"},
      // Sums.
      {"accumulation=local", 2,
       "error: accumulation local sums each rank's micro-batches first, but reduce ordered sums all micro-batches in "
       "their order\n  set reduce fast, or accumulation sharded"},
      // The sequence.
      {"mesh.sequence_parallel=true", 2,
       "error: mesh.sequence_parallel shares tokens among the ranks of mesh.tp, which is 1\n  set mesh.tp above 1"},
      {"mesh.sequence_parallel=true mesh.tp=8 train.max_seq_length=9 train.micro_batch_size=4", 8,
       "error: mesh.sequence_parallel cannot share the 36 tokens of a micro-batch among 8 ranks"},
      {"mesh.sequence_parallel=true mesh.tp=8 mesh.cp=2 train.max_seq_length=4 train.micro_batch_size=2", 16,
       "error: mesh.sequence_parallel cannot share the 4 tokens of a micro-batch among 8 ranks"},
      {"mesh.cp=2 train.max_seq_length=130", 2,
       "error: 2 ranks cannot share a sequence of 130 tokens: mesh.context ring cuts it into 4 equal pieces\n"
       "  train.max_seq_length 128 or 132 fits"},
      {"mesh.cp=2 model.max_position_embeddings=130", 2, "a sequence of 130 tokens: mesh.context ring"},
      {"mesh.cp=4 mesh.context=ulysses train.max_seq_length=130", 4,
       "4 ranks cannot share a sequence of 130 tokens: mesh.context ulysses cuts it into 4 equal pieces"},
      // The pipeline.
      {"mesh.pp=8 model.num_hidden_layers=4", 8,
       "error: a pipeline of 8 stages cannot be cut from 6 units (embedding, 4 blocks, head)\n"
       "  mesh.pp x the stages on each rank must not exceed 6"},
      {"mesh.pp=7 model.num_hidden_layers=4", 7, "a pipeline of 7 stages cannot be cut from 6 units"},
      {"mesh.pp=4 pipeline.schedule=zb_v model.num_hidden_layers=4", 4, "a pipeline of 8 stages cannot be cut"},
      {"mesh.pp=2 pipeline.split=[4,4,4]", 2,
       "error: pipeline.split names 3 stages, but the pipeline has 2\n  give 2 numbers: mesh.pp 2 x 1 on each rank"},
      {"mesh.pp=2 pipeline.split=[4,4] pipeline.schedule=breadth_first", 2, "give 4 numbers: mesh.pp 2 x 2"},
      {"mesh.pp=2 pipeline.split=[4,4] model.num_hidden_layers=5", 2,
       "error: pipeline.split adds up to 8, but the model has 7\n  units are the embedding, 5 blocks and the head"},
      {"mesh.pp=4 pipeline.schedule=interleaved_1f1b train.global_batch_size=20", 4,
       "error: interleaved_1f1b runs micro-batches in rounds of mesh.pp 4 on each of 1 data-parallel rank, and the "
       "step's 5 are not whole rounds\n  train.global_batch_size 16 or 32 fits"},
      {"mesh.pp=2 mesh.shard=2 pipeline.schedule=interleaved_1f1b train.global_batch_size=24", 4,
       "train.global_batch_size 16 or 32 fits"},
      // Groups.
      {"wrap.units=head wrap.by=layer", 1, "error: wrap.units names whole units"},
      {"wrap.units=head wrap.min_num_params=100", 1, "error: wrap.units names whole units"},
  };
  for (const Refused& c : cases) {
    EXPECT_THAT(verdict(settings_from(c.arguments), c.ranks), HasSubstr(c.text)) << c.arguments;
  }
}

TEST(ValidateParallel, WhatIsOnTheRightSideOfEachRuleIsAccepted) {
  const std::vector<std::pair<const char*, int64_t>> cases = {
      {"mesh.pp=2 mesh.cp=2 mesh.tp=2", 8},
      {"mesh.pp=2 mesh.cp=2 mesh.tp=2", 16},
      {"mesh.tp=1 mesh.shard=8 mesh.replicate=auto", 8},
      {"strategy=no_shard mesh.replicate=4", 4},
      {"strategy=zero1", 4},
      {"strategy=zero2 mesh.shard=4", 4},
      {"strategy=hybrid_shard mesh.replicate=2", 4},
      {"strategy=hybrid_zero2 mesh.shard=2 mesh.replicate=2", 4},
      {"strategy=hybrid_shard num_nodes=2 devices=4", 8},
      {"accumulation=local reduce=fast", 2},
      {"mesh.sequence_parallel=true mesh.tp=2", 2},
      {"mesh.sequence_parallel=true mesh.tp=4 train.max_seq_length=9 train.micro_batch_size=4", 4},
      {"mesh.cp=2 train.max_seq_length=132", 2},
      {"mesh.cp=2 mesh.context=ulysses train.max_seq_length=130", 2},
      {"train.max_seq_length=131", 2},
      {"mesh.pp=6 model.num_hidden_layers=4", 6},
      {"mesh.pp=2 pipeline.split=[4,3] model.num_hidden_layers=5", 2},
      {"mesh.pp=4 pipeline.schedule=1f1b train.global_batch_size=20", 4},
      {"mesh.pp=2 mesh.shard=2 pipeline.schedule=interleaved_1f1b train.global_batch_size=32", 4},
      {"wrap.units=head", 1},
      {"wrap.by=layer wrap.min_num_params=100", 1},
  };
  for (const auto& [arguments, ranks] : cases) EXPECT_EQ(verdict(settings_from(arguments), ranks), "") << arguments;
}

TEST(ValidateParallel, WithoutPipelineRanksItsSettingsMeanNothing) {
  for (const char* schedule : {"1f1b", "interleaved_1f1b", "zb_v", "breadth_first"}) {
    Settings settings = settings_from("pipeline.split=[1,1] pipeline.chunks=3 model.num_hidden_layers=1");
    settings.pipeline.schedule = schedule;
    EXPECT_EQ(verdict(settings, 3), "") << schedule;
  }
}

}  // namespace
}  // namespace trireme
