#include "trireme/comm/flight_recorder.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "thread_ranks.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"

namespace trireme::comm {
namespace {

TEST(FlightRecorder, HoldsTheLastOnes) {
  FlightRecorder recorder(3);
  for (uint64_t i = 0; i < 5; ++i) {
    const uint64_t id = recorder.start("shard", i, Operation::all_gather, at::kFloat, 100 + i);
    if (i != 4) recorder.finish(id, i == 3 ? FlightRecorder::State::failed : FlightRecorder::State::finished);
  }
  recorder.finish(1, FlightRecorder::State::failed);  // overwritten long since
  const auto entries = recorder.records();
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].sequence, 2u);
  EXPECT_EQ(entries[0].state, FlightRecorder::State::finished);
  EXPECT_EQ(entries[1].state, FlightRecorder::State::failed);
  EXPECT_EQ(entries[2].elements, 104);
  EXPECT_EQ(entries[2].state, FlightRecorder::State::started);
}

TEST(FlightRecorder, AFileTellsOthersWhatTheRankDoesAndWaitsFor) {
  const std::filesystem::path folder = ::testing::TempDir() + "flight-test";
  std::filesystem::remove_all(folder);
  const ActionLabel label("ReduceGradient(block 3)");
  const auto read = [&] { return base::read_flights(folder).at(0); };
  FlightRecorder recorder(folder,
                          {.global_rank = 5, .world_size = 8, .job = "a 0", .timeout = std::chrono::seconds(30)});
  recorder.join({.name = "tp \"inner\"", .rank = 1, .size = 2, .global_ranks = {4, 5}});
  recorder.set_step(12);
  {
    const FlightRecorder::Actions actions(&recorder);
    recorder.set_action(label);
    const uint64_t id = recorder.start("tp \"inner\"", 7, Operation::reduce_scatter, at::kBFloat16, 4096);
    EXPECT_EQ(recorder.where(id), " in ReduceGradient(block 3) of step 12");
    {
      const FlightRecorder::Waiting waiting(&recorder, id);
      EXPECT_EQ(read().header.waiting_id, id);
    }
    EXPECT_EQ(read().header.waiting_id, 0u);
    recorder.finish(id, FlightRecorder::State::finished);
    EXPECT_EQ(read().header.action.view(), "ReduceGradient(block 3)");
  }
  const uint64_t second = recorder.start("world", 8, Operation::receive, at::ScalarType::Undefined, 0, 3);
  try {
    const FlightRecorder::Waiting waiting(&recorder, second);
    throw std::runtime_error("it took too long");
  } catch (const std::runtime_error&) {
  }
  const base::FlightLog log = read();
  EXPECT_EQ(log.header.global_rank, 5);
  EXPECT_EQ(log.header.world_size, 8);
  EXPECT_EQ(log.header.pid, getpid());
  EXPECT_EQ(log.header.timeout_ms, 30'000);
  EXPECT_EQ(log.header.action.view(), "");
  EXPECT_EQ(log.header.waiting_id, second);
  EXPECT_GT(log.header.gave_up_us, 0);
  ASSERT_EQ(log.header.num_groups, 1);
  EXPECT_EQ(log.header.groups[0].num_calls, 8u);
  EXPECT_EQ(log.header.groups[0].members[1], 5);
  ASSERT_EQ(log.records.size(), 2u);
  EXPECT_EQ(log.records[0].group.view(), "tp \"inner\"");
  EXPECT_EQ(log.records[0].operation.view(), "reduce_scatter");
  EXPECT_EQ(log.records[0].dtype.view(), "bfloat16");
  EXPECT_EQ(log.records[0].bytes, 8192);
  EXPECT_EQ(log.records[0].step, 12);
  EXPECT_EQ(log.records[0].state, FlightRecorder::State::finished);
  EXPECT_GE(log.records[0].finished_us, log.records[0].started_us);
  EXPECT_EQ(log.records[1].peer, 3);
  EXPECT_EQ(log.records[1].state, FlightRecorder::State::started);
  EXPECT_EQ(log.records[1].finished_us, 0);
}

TEST(FlightRecorder, FilesOfAnotherJobAndFilesThatAreNoneAreLeftOut) {
  const std::filesystem::path folder = ::testing::TempDir() + "flight-others";
  std::filesystem::remove_all(folder);
  const FlightRecorder old(folder, {.global_rank = 3, .world_size = 4, .job = "old"});
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const FlightRecorder mine(folder, {.global_rank = 1, .world_size = 2, .job = "new"});
  std::ofstream(folder / "rank2.flight") << "TRFLIGH1 and nothing more";
  std::ofstream(folder / "rank4.flight") << std::string(1 << 20, 'x');
  const auto logs = base::read_flights(folder);
  ASSERT_EQ(logs.size(), 1u);
  EXPECT_EQ(logs[0].header.global_rank, 1);
}

TEST(FlightRecorder, WithoutAFileItRecordsInMemory) {
  FlightRecorder recorder("/proc/no/such/folder", {.global_rank = 0, .world_size = 2});
  recorder.start("world", 0, Operation::barrier, at::ScalarType::Undefined, 0);
  EXPECT_EQ(recorder.records().size(), 1u);
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
      const auto entries = recorder->records();
      ASSERT_GE(entries.size(), 2u) << backend;
      EXPECT_EQ(entries[0].operation_code, static_cast<uint8_t>(Operation::all_reduce));
      EXPECT_EQ(entries[0].dtype_code, static_cast<uint8_t>(at::kDouble));
      EXPECT_EQ(entries[0].elements, 30);
      EXPECT_EQ(entries[0].state, FlightRecorder::State::finished) << backend;
      EXPECT_EQ(entries[1].sequence, 1u);
      if (entries.size() > 2) {
        EXPECT_EQ(entries[2].state, FlightRecorder::State::failed) << backend;
      }
    }
  }
}

// Another process writes as fast as it can, its number from the first to the last byte of a record: none may be read of
// two records.
TEST(FlightRecorder, ARecordThatIsWrittenOverMeanwhileIsReadWholeOrNotAtAll) {
  const std::filesystem::path folder = ::testing::TempDir() + "flight-torn-test";
  std::filesystem::remove_all(folder);
  const pid_t writer = fork();
  if (writer == 0) {
    FlightRecorder recorder(folder, {.global_rank = 0, .world_size = 2, .job = "torn 0"});
    for (uint64_t n = 1;; ++n) {
      const ActionLabel label(std::to_string(n));
      recorder.set_action(label);
      recorder.start(label.text, n, Operation::all_reduce, at::kFloat, static_cast<int64_t>(n));
    }
  }
  uint64_t looks = 0, records = 0, torn = 0;
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
       std::chrono::steady_clock::now() < end; ++looks)
    for (const base::FlightLog& log : base::read_flights(folder))
      for (const base::FlightRecord& r : log.records) {
        const std::string number = std::to_string(r.id);
        ++records;
        torn += r.sequence != r.id || r.elements != static_cast<int64_t>(r.id) || r.group.view() != number ||
                r.action.view() != number;
      }
  kill(writer, SIGKILL);
  waitpid(writer, nullptr, 0);
  EXPECT_GT(records, 1000u);
  EXPECT_EQ(torn, 0u) << records << " records in " << looks << " looks";
}

// Something that happens in the middle of a thread's work: when it first touches `page`.
class Interruption {
 public:
  Interruption(char* page, int protection, std::function<void()> act) : page_(page), act_(std::move(act)) {
    now_ = this;
    struct sigaction action{};
    action.sa_handler = [](int) {
      mprotect(now_->page_, kPage, PROT_READ | PROT_WRITE);
      now_->act_();
    };
    sigaction(SIGSEGV, &action, &before_);
    mprotect(page, kPage, protection);
  }
  ~Interruption() { sigaction(SIGSEGV, &before_, nullptr); }
  Interruption(const Interruption&) = delete;

  static constexpr int64_t kPage = 4096;

 private:
  static inline Interruption* now_ = nullptr;
  char* page_;
  std::function<void()> act_;
  struct sigaction before_{};
};

// The first record that lies on two pages.
int64_t divided_record() {
  constexpr int64_t kBytes = sizeof(base::FlightRecord);
  for (int64_t i = 0;; ++i) {
    const int64_t begin = sizeof(base::FlightHeader) + i * kBytes;
    if (begin / Interruption::kPage != (begin + kBytes - 1) / Interruption::kPage) return i;
  }
}

// A recorder's file as the recorder has mapped it, and as another process would.
class TwoViews {
 public:
  explicit TwoViews(const std::filesystem::path& folder) : recorder(make(folder)) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
      if (line.ends_with(base::flight_file(folder, 0).string()))
        own = reinterpret_cast<char*>(std::stoull(line, nullptr, 16));
    const base::FileDescriptor file = base::open_file(base::flight_file(folder, 0), O_RDWR);
    other = static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));
    while (start() != static_cast<uint64_t>(base::kFlightRecords + divided_record() - 1)) continue;
  }
  ~TwoViews() { munmap(other, kBytes); }
  TwoViews(const TwoViews&) = delete;

  uint64_t start() {
    ++number_;
    return recorder->start(std::to_string(number_), number_, Operation::all_reduce, at::kFloat, 1);
  }
  char* record(char* view) const {
    return view + sizeof(base::FlightHeader) + divided_record() * sizeof(base::FlightRecord);
  }
  char* second_page(char* view) const {
    const auto behind = reinterpret_cast<uintptr_t>(record(view)) + sizeof(base::FlightRecord);
    return reinterpret_cast<char*>(behind / Interruption::kPage * Interruption::kPage);
  }

  static constexpr int64_t kBytes = base::flight_file_bytes(base::kFlightRecords);
  std::shared_ptr<FlightRecorder> recorder;
  char *own = nullptr, *other = nullptr;

 private:
  static std::shared_ptr<FlightRecorder> make(const std::filesystem::path& folder) {
    std::filesystem::remove_all(folder);
    return std::make_shared<FlightRecorder>(folder, FlightRecorder::Owner{.global_rank = 0, .world_size = 2});
  }
  uint64_t number_ = 0;
};

TEST(FlightRecorder, WhatIsWrittenOverInTheMiddleOfALookIsLookedAtAgain) {
  TwoViews views(::testing::TempDir() + "flight-look-test");
  uint64_t written = 0;
  const Interruption interruption(views.second_page(views.other), PROT_NONE, [&] { written = views.start(); });
  const auto records = base::read_flight(views.other, TwoViews::kBytes, "a test's").records;
  ASSERT_GT(written, 0u);
  ASSERT_EQ(records.size(), static_cast<size_t>(base::kFlightRecords));
  EXPECT_EQ(records.back().id, written);
  for (const base::FlightRecord& r : records) {
    EXPECT_EQ(r.sequence, r.id);
    EXPECT_EQ(r.group.view(), std::to_string(r.id));
  }
}

TEST(FlightRecorder, WhileARecordIsWrittenItHasNoNumber) {
  TwoViews views(::testing::TempDir() + "flight-write-test");
  const auto id = [&] { return *reinterpret_cast<const uint64_t*>(views.record(views.other)); };
  EXPECT_EQ(id(), static_cast<uint64_t>(divided_record()));
  uint64_t meanwhile = 1;
  const Interruption interruption(views.second_page(views.own), PROT_READ, [&] { meanwhile = id(); });
  const uint64_t written = views.start();
  EXPECT_EQ(meanwhile, 0u);
  EXPECT_EQ(id(), written);
}

}  // namespace
}  // namespace trireme::comm
