// Values that rest in host memory or on a disk: training, evaluation and checkpoints with the same bits as without.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <random>

#include "support.h"
#include "trireme/base/error.h"
#include "trireme/engine/offload_room.h"
#include "trireme/model/tensor_names.h"

namespace trireme::engine {
namespace {

using schedule::OffloadSettings;
using schedule::Tier;

void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  ASSERT_EQ(a.norms.size(), b.norms.size());
  for (size_t i = 0; i < a.norms.size(); ++i)
    EXPECT_EQ(std::bit_cast<int64_t>(a.norms[i]), std::bit_cast<int64_t>(b.norms[i]));
  EXPECT_EQ(a.evaluation, b.evaluation);
  EXPECT_EQ(a.held_out, b.held_out);
  EXPECT_TRUE(at::equal(a.parameters, b.parameters)) << relative_distance(a.parameters, b.parameters);
  EXPECT_TRUE(at::equal(a.gradients, b.gradients)) << relative_distance(a.gradients, b.gradients);
  EXPECT_EQ(a.allocated, a.planned);
}

constexpr Tier kTiers[] = {Tier::cpu, Tier::disk};

std::vector<OffloadSettings> each_kind(double ratio) {
  std::vector<OffloadSettings> all;
  for (const Tier tier : kTiers) {
    all.push_back({.optimizer = tier, .ratio = ratio});
    all.push_back({.master = tier, .ratio = ratio});
    all.push_back({.parameters = tier, .ratio = ratio});
    all.push_back({.gradients = tier, .ratio = ratio});
    all.push_back({.activations = tier, .ratio = ratio});
  }
  all.push_back({Tier::disk, Tier::cpu, Tier::disk, Tier::cpu, Tier::disk, ratio});
  all.back().prefetch = 2;
  all.push_back({Tier::cpu, Tier::disk, Tier::cpu, Tier::disk, Tier::cpu, ratio});
  all.back().prefetch = 0;
  return all;
}

// The placement, or one whose refusal is expected.
void judge(Job job, const Outcome& plain, const OffloadSettings& offload) {
  SCOPED_TRACE(fmt::format("optimizer {} master {} parameters {} gradients {} activations {} ratio {}",
                           int(offload.optimizer), int(offload.master), int(offload.parameters), int(offload.gradients),
                           int(offload.activations), offload.ratio));
  job.offload = offload;
  expect_same(run(job), plain);
}

TEST(Offload, EveryPlacementOnOneRankGivesTheBitsOfNone) {
  for (const model::Precision& precision : {kFloat32, kMixed}) {
    Job job{.model = small_llama(), .precision = precision};
    const Outcome plain = run(job);
    for (const double ratio : {0.3, 1.0})
      for (const OffloadSettings& offload : each_kind(ratio)) judge(job, plain, offload);
  }
}

TEST(Offload, EveryPlacementOnShardsAndReplicasGivesTheBitsOfNone) {
  Job job{.model = small_llama(), .precision = kMixed};
  job.strategy = plan::Strategy::full_shard;
  for (const comm::MeshSizes mesh : {comm::MeshSizes{.shard = 2}, comm::MeshSizes{.replicate = 2, .shard = 2}}) {
    job.mesh = mesh;
    const Outcome plain = run(job);
    for (const double ratio : {0.3, 1.0})
      for (const OffloadSettings& offload : each_kind(ratio)) judge(job, plain, offload);
  }
}

TEST(Offload, PipelinesRecomputationAndTiedWeightsGiveTheBitsOfNone) {
  for (const char* family : {"llama", "gpt2"})
    for (const char* schedule : {"1f1b", "zb_h1"}) {
      Job job{.model = small_model(family), .precision = kMixed};
      job.strategy = plan::Strategy::full_shard;
      job.mesh = {.pp = 2, .shard = 2};
      job.pipeline.schedule = schedule;
      job.recompute.mode = schedule::Recompute::full;
      const Outcome plain = run(job);
      for (const OffloadSettings& offload : each_kind(1)) judge(job, plain, offload);
    }
}

TEST(Offload, LocalAccumulationZero2AndGivenUpStepsGiveTheBitsOfNone) {
  Job job{.model = small_llama(), .precision = kMixed};
  job.mesh = {.shard = 2};
  job.strategy = plan::Strategy::shard_grad_op;
  job.gives_up = true;
  const Outcome given_up = run(job);
  judge(job, given_up, {.optimizer = Tier::disk, .master = Tier::cpu, .gradients = Tier::disk});
  job.gives_up = false;
  job.strategy = plan::Strategy::no_shard;
  const Outcome copies = run(job);
  judge(job, copies,
        {.optimizer = Tier::disk, .master = Tier::cpu, .parameters = Tier::disk, .activations = Tier::cpu});
  job.mesh = {.shard = 1};
  job.strategy = plan::Strategy::no_shard;
  job.ordered = false;
  job.local_accumulation = true;
  const Outcome local = run(job);
  for (const OffloadSettings& offload : each_kind(1)) judge(job, local, offload);
}

TEST(Offload, AdaptersAndOtherOptimizersGiveTheBitsOfNone) {
  Job job{.model = small_llama(), .precision = kMixed};
  job.strategy = plan::Strategy::full_shard;
  job.mesh = {.shard = 2};
  const model::TensorNames& names = model::tensor_names(job.model.architecture);
  for (int64_t layer = 0; layer < job.model.num_hidden_layers; ++layer)
    job.adapters.modules[names.block.prefix + std::to_string(layer) + "." + names.block.q] = {.rank = 4, .scale = 2};
  const Outcome adapted = run(job);
  for (const OffloadSettings& offload : each_kind(1)) judge(job, adapted, offload);
  job.adapters = {};
  for (const optim::Rule rule :
       {optim::Rule::adafactor, optim::Rule::lamb, optim::Rule::adamw8bit, optim::Rule::muon}) {
    SCOPED_TRACE(int(rule));
    job.optimizer.rule = rule;
    job.grouping.matrices_apart = rule == optim::Rule::muon;
    const Outcome plain = run(job);
    judge(job, plain, {Tier::disk, Tier::cpu, Tier::disk, Tier::cpu, Tier::cpu});
  }
}

// Small groups and whole matrices: some ranks own nothing of a group and move nothing of it, so their lists differ.
TEST(Offload, RanksThatOwnNothingOfAGroupGiveTheBitsOfNone) {
  const std::vector<OffloadSettings> placements = {{.parameters = Tier::cpu},
                                                   {.gradients = Tier::cpu},
                                                   {Tier::cpu, Tier::cpu, Tier::cpu, Tier::cpu, Tier::cpu},
                                                   {.parameters = Tier::cpu, .gradients = Tier::cpu, .ratio = 0.6}};
  for (const bool muon : {false, true})
    for (const int shards : {2, 4}) {
      SCOPED_TRACE(fmt::format("muon {}, {} shards", muon, shards));
      Job job{.model = small_llama(), .precision = muon ? kFloat64 : kFloat32};
      job.mesh = {.shard = shards};
      job.strategy = plan::Strategy::full_shard;
      if (muon)
        job.optimizer.rule = optim::Rule::muon, job.grouping.matrices_apart = true;
      else
        job.grouping.by = model::WrapBy::parameter;
      for (const int depth : {2, 3}) {
        job.prefetch.depth = depth;
        const Outcome plain = run(job);
        for (const OffloadSettings& offload : placements) judge(job, plain, offload);
      }
    }
}

// An embedding that the optimizer updates in two tiles.
TEST(Offload, TilesOfALargeGroupGiveTheBitsOfTheWhole) {
  for (const model::Precision& precision : {kFloat32, kMixed, bfloat16_alone(model::Rounding::stochastic)})
    for (const int shards : {1, 2}) {
      Job job{.model = small_llama(), .precision = precision};
      job.model.vocab_size = shards * 25000;
      job.steps = 2;
      job.global_micro_batches = 2;
      job.shape = {1, 8};
      job.mesh = {.shard = shards};
      job.strategy = shards == 1 ? plan::Strategy::no_shard : plan::Strategy::full_shard;
      const Outcome plain = run(job);
      judge(job, plain, {.optimizer = Tier::disk});
      judge(job, plain, {Tier::disk, Tier::cpu, Tier::disk, Tier::cpu});
    }
}

// Each block is moved in two halves. With one buffer the second half follows the first; with more, other blocks begin.
TEST(Offload, ADiskMovesAsManyBlocksAtATimeAsThereAreBuffers) {
  Job job{.model = small_llama(), .precision = kMixed};
  job.model.vocab_size = 25000;
  job.steps = 1;
  job.global_micro_batches = 1;
  job.shape = {1, 8};
  for (const int64_t buffers : {1, 8}) {
    job.offload = {.optimizer = Tier::disk, .buffers = buffers};
    std::mutex mutex;
    bool others_begin = false;
    std::array<bool, 2> was_whole{};  // the last move of each direction
    BlockIo::set_faults([&](bool write, int64_t, int64_t bytes) {
      const std::lock_guard lock(mutex);
      const bool is_whole = bytes == kOffloadBlock;
      others_begin |= is_whole && was_whole[static_cast<size_t>(write)];
      was_whole[static_cast<size_t>(write)] = is_whole;
      return BlockIo::Fault{.at_most = is_whole ? bytes / 2 : INT64_MAX};
    });
    run(job);
    BlockIo::set_faults({});
    EXPECT_EQ(others_begin, buffers > 1);
  }
}

TEST(Offload, SkippedStepsLeaveWhatRestsUntouched) {
  Job job{.model = small_llama(), .precision = kHalfMixed};
  job.mesh = {.shard = 2};
  job.strategy = plan::Strategy::full_shard;
  job.overflows = {2};
  const Outcome plain = run(job);
  judge(job, plain, {Tier::disk, Tier::disk, Tier::cpu, Tier::cpu});
}

// A disk that fails at any moment of a run ends it with one sentence.
TEST(Offload, FiftyErrorsOfTheDiskAreOneSentenceEach) {
  Job job{.model = small_llama(), .precision = kMixed, .steps = 2};
  job.offload = {Tier::disk, Tier::disk, Tier::disk, Tier::disk, Tier::disk};
  std::atomic<int64_t> moves{0};
  BlockIo::set_faults([&](bool, int64_t, int64_t) { return ++moves, BlockIo::Fault{}; });
  const Outcome whole = run(job);
  const int64_t all = moves;
  ASSERT_GT(all, 100);
  std::mt19937 random(1);
  constexpr int kCodes[] = {EIO, ENOSPC, EDQUOT, EFBIG, ENOMEM};
  for (int i = 0; i < 50; ++i) {
    const int64_t at = static_cast<int64_t>(random()) % all;
    const int code = kCodes[i % 5];
    std::atomic<int64_t> count{0};
    BlockIo::set_faults([&](bool, int64_t, int64_t) { return BlockIo::Fault{.code = count++ == at ? code : 0}; });
    try {
      run(job);
      ADD_FAILURE() << "error " << i << " at move " << at << " was not told";
    } catch (const base::FileError& error) {
      EXPECT_EQ(error.code, code);
      EXPECT_THAT(error.what(),
                  testing::AllOf(testing::HasSubstr("in the offload file of"), testing::HasSubstr(std::strerror(code)),
                                 testing::Not(testing::HasSubstr("\n"))));
    }
  }
  // Short reads and writes are no errors.
  BlockIo::set_faults([&](bool, int64_t, int64_t bytes) {
    return BlockIo::Fault{.at_most = ++moves % 4 == 0 && bytes > 4096 ? 4096 : INT64_MAX};
  });
  expect_same(run(job), whole);
  BlockIo::set_faults({});
}

TEST(Offload, WhatRanksShareCannotLeave) {
  Job job{.model = small_llama(), .precision = kMixed};
  job.mesh = {.shard = 2};
  job.strategy = plan::Strategy::shard_grad_op;
  job.offload.parameters = Tier::cpu;
  EXPECT_THROW(run(job), UsageError);
  job.strategy = plan::Strategy::no_shard;
  job.offload = {.gradients = Tier::cpu};
  EXPECT_THROW(run(job), UsageError);
}

TEST(Offload, FoldersInMemoryAreRefused) {
  EXPECT_THROW(OffloadFile("/dev/shm", 1 << 20), UsageError);
  EXPECT_THROW(OffloadFile("/nowhere", 1 << 20), UsageError);
  try {
    require_offload_room(".", int64_t{1} << 60);
    FAIL() << "no disk has 1 EiB";
  } catch (const base::FileError& refusal) {
    EXPECT_EQ(refusal.code, ENOSPC);
    EXPECT_THAT(refusal.what(), testing::HasSubstr("cannot offload 1.00 EiB to .: it has "));
  }
  require_offload_room(".", 1);
}

// Both ways of moving blocks, with short reads and writes; errors and changed bytes are one sentence.
class Disk : public testing::TestWithParam<BlockIo::Way> {
 protected:
  void TearDown() override { BlockIo::set_faults({}); }
  static constexpr int64_t kBytes = 5 * kOffloadBlock + 8192;
  OffloadFile file_{".", kBytes};
  BlockIo io_{file_.descriptor(), 3, GetParam()};
  at::Tensor memory_ = at::empty({kBytes + 4096}, at::kByte);
  char* buffer() {
    auto at = reinterpret_cast<uintptr_t>(memory_.mutable_data_ptr());
    return reinterpret_cast<char*>((at + 4095) / 4096 * 4096);
  }
  void fill(int seed) {
    for (int64_t i = 0; i < kBytes; ++i) buffer()[i] = static_cast<char>((i * 31 + i / 4096 + seed) & 0x7f);
  }
  std::string message(const std::function<void()>& what) {
    try {
      what();
    } catch (const base::FileError& e) {
      return e.what();
    }
    return "";
  }
};

TEST_P(Disk, WhatIsWrittenIsRead) {
  std::atomic<int> count = 0;  // several threads move blocks
  BlockIo::set_faults([&](bool, int64_t, int64_t) {
    const int n = ++count;
    return BlockIo::Fault{.at_most = n % 3 == 0 ? 4096 * (n % 7 + 1) : INT64_MAX};
  });
  fill(1);
  const at::Tensor wanted = at::from_blob(buffer(), {kBytes}, at::kByte).clone();
  file_.write(io_, buffer(), 0, kBytes, "x");
  fill(2);
  file_.read(io_, buffer(), 0, kBytes, "x");
  EXPECT_TRUE(at::equal(at::from_blob(buffer(), {kBytes}, at::kByte), wanted));
  EXPECT_TRUE(at::equal(at::from_blob(file_.data(), {kBytes}, at::kByte), wanted));
}

TEST_P(Disk, ErrorsNameWhatWasMovedAndWhere) {
  fill(1);
  file_.write(io_, buffer(), 0, kBytes, "x");
  for (const bool write : {false, true})
    for (const int code : {EIO, ENOSPC}) {
      BlockIo::set_faults([&](bool w, int64_t offset, int64_t) {
        return BlockIo::Fault{.code = w == write && offset == 2 * kOffloadBlock ? code : 0};
      });
      const std::string said = message([&] {
        if (write)
          file_.write(io_, buffer(), 0, kBytes, "exp_avg(block 3)");
        else
          file_.read(io_, buffer(), 0, kBytes, "exp_avg(block 3)");
      });
      EXPECT_THAT(said, testing::HasSubstr(write ? "cannot write exp_avg(block 3)" : "cannot read exp_avg(block 3)"));
      EXPECT_THAT(said, testing::HasSubstr("at byte 2097152"));
      EXPECT_THAT(said, testing::HasSubstr(std::strerror(code)));
    }
}

TEST_P(Disk, ATornBlockIsSeen) {
  fill(1);
  file_.write(io_, buffer(), 0, kBytes, "x");
  file_.data()[3 * kOffloadBlock + 77] ^= 1;
  EXPECT_THAT(message([&] { file_.read(io_, buffer(), 0, kBytes, "master(head)"); }),
              testing::HasSubstr("other bytes than were written at byte 3145728, in master(head)"));
  EXPECT_THAT(message([&] { file_.verify(0, kBytes, "master(head)"); }),
              testing::HasSubstr("other bytes than were written at byte 3145728, in master(head)"));
  file_.seal(0, kBytes);
  EXPECT_EQ(message([&] { file_.verify(0, kBytes, "x"); }), "");
  EXPECT_EQ(message([&] { file_.read(io_, buffer(), 0, kBytes, "x"); }), "");
}

INSTANTIATE_TEST_SUITE_P(Ways, Disk, testing::Values(BlockIo::Way::automatic, BlockIo::Way::threads));

}  // namespace
}  // namespace trireme::engine
