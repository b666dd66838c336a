#include "trireme/comm/flight_recorder.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "thread_ranks.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

TEST(FlightRecorder, HoldsTheLastOnes) {
  FlightRecorder recorder(3);
  for (uint64_t i = 0; i < 5; ++i) {
    const uint64_t id = recorder.start("shard", i, Operation::all_gather, at::kFloat, 100 + i);
    if (i != 4) recorder.finish(id, i == 3 ? FlightRecorder::State::failed : FlightRecorder::State::finished);
  }
  recorder.finish(1, FlightRecorder::State::failed);  // overwritten long since
  const auto entries = recorder.entries();
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].sequence, 2u);
  EXPECT_EQ(entries[0].state, FlightRecorder::State::finished);
  EXPECT_EQ(entries[1].state, FlightRecorder::State::failed);
  EXPECT_EQ(entries[2].elements, 104);
  EXPECT_EQ(entries[2].state, FlightRecorder::State::started);
}

TEST(FlightRecorder, DumpsJsonLines) {
  FlightRecorder recorder(8);
  recorder.finish(recorder.start("tp \"inner\"", 7, Operation::reduce_scatter, at::kBFloat16, 4096),
                  FlightRecorder::State::finished);
  recorder.start("world", 8, Operation::barrier, at::ScalarType::Undefined, 0);
  const std::string path = ::testing::TempDir() + "recorder.jsonl";
  recorder.dump(path);
  std::ifstream file(path);
  std::string first, second, rest;
  std::getline(file, first);
  std::getline(file, second);
  EXPECT_FALSE(std::getline(file, rest));
  const auto a = nlohmann::json::parse(first), b = nlohmann::json::parse(second);
  EXPECT_EQ(a["group"], "tp \"inner\"");
  EXPECT_EQ(a["sequence"], 7);
  EXPECT_EQ(a["operation"], "reduce_scatter");
  EXPECT_EQ(a["dtype"], "bfloat16");
  EXPECT_EQ(a["elements"], 4096);
  EXPECT_EQ(a["state"], "finished");
  EXPECT_GE(a["finished_us"].get<int64_t>(), a["started_us"].get<int64_t>());
  EXPECT_EQ(b["state"], "started");
  EXPECT_TRUE(b["finished_us"].is_null());
  EXPECT_THROW(recorder.dump("/nonexistent/folder/file"), UsageError);
}

TEST(FlightRecorder, EveryBackendRecordsIntoIt) {
  for (const char* backend : {"threads", "shm", "gloo", "dry_run"}) {
    const auto store = testing::fresh_store();
    std::vector<std::shared_ptr<FlightRecorder>> recorders(2);
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      recorders[rank] = std::make_shared<FlightRecorder>(16);
      ranks.emplace_back([&, rank] {
        const auto c = make_communicator(
            {.backend = backend, .rank = rank, .size = 2, .store = store, .recorder = recorders[rank]});
        at::Tensor t = at::zeros({30}, at::kDouble);
        c->all_reduce(t, t, {})->wait();
        c->barrier()->wait();
        if (std::string(backend) == "dry_run") return;
        try {
          c->broadcast(t, rank)->wait();  // roots differ
        } catch (const CommError&) {
        }
      });
    }
    ranks.clear();
    for (const auto& recorder : recorders) {
      const auto entries = recorder->entries();
      ASSERT_GE(entries.size(), 2u) << backend;
      EXPECT_EQ(entries[0].operation, Operation::all_reduce);
      EXPECT_EQ(entries[0].dtype, at::kDouble);
      EXPECT_EQ(entries[0].elements, 30);
      EXPECT_EQ(entries[0].state, FlightRecorder::State::finished) << backend;
      EXPECT_EQ(entries[1].sequence, 1u);
      if (entries.size() > 2) {
        EXPECT_EQ(entries[2].state, FlightRecorder::State::failed) << backend;
      }
    }
  }
}

}  // namespace
}  // namespace trireme::comm
