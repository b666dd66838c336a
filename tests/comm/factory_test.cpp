// Choosing a backend, stores, memory that cannot be had, and the refusals.
#include "trireme/comm/factory.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <netinet/in.h>
#include <atomic>
#include <filesystem>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>

#include "comm_checks.h"
#include "thread_ranks.h"
#include "trireme/base/error.h"
#include "trireme/base/shared_library.h"

namespace trireme::comm::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

std::string refusal(const GroupOptions& options) {
  try {
    make_communicator(options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Factory, GroupOfOneNeedsNoStoreAndIsFree) {
  for (const char* backend : {"auto", "shm", "gloo", "threads"}) {
    const auto c = make_communicator({.backend = backend});
    EXPECT_EQ(c->backend(), "local");
    at::Tensor in = at::arange(10, at::kFloat), out = at::ones({10}, at::kFloat);
    c->reduce_scatter(out, in, std::vector<int64_t>{10}, {.accumulate = true})->wait();
    EXPECT_TRUE(at::equal(out, in + 1));
    const SharedBuffer b = c->allocate_shared(100, true);
    EXPECT_TRUE(b.host_shared);
    EXPECT_EQ(b.parts, std::vector<void*>{b.mine});
  }
}

TEST(Factory, DryRunIsAnyRankOfAnyWorld) {
  const auto c = make_communicator({.backend = "dry_run", .rank = 700, .size = 1024});
  const std::vector<int64_t> counts(1024, 2);
  at::Tensor whole = at::zeros({2048}, at::kFloat), mine = at::ones({2}, at::kFloat);
  const auto work = c->all_gather(whole, mine, counts);
  EXPECT_TRUE(work->poll());
  EXPECT_EQ(whole.sum().item<float>(), 2);
  EXPECT_TRUE(at::equal(whole.narrow(0, 1400, 2), mine));
  c->reduce_scatter(mine, whole.fill_(3), counts, {.accumulate = true})->wait();
  EXPECT_TRUE(at::equal(mine, at::full({2}, 4.0f)));
  c->all_reduce(whole, whole, {})->wait();
  EXPECT_TRUE(at::equal(whole, at::full({2048}, 3.0f)));
  c->send(mine, 701)->wait();
  c->receive(mine, 699)->wait();
  c->barrier()->wait();
  EXPECT_FALSE(c->allocate_shared(100, true).host_shared);
}

TEST(Factory, RefusesWhatDoesNotFit) {
  EXPECT_THAT(refusal({.backend = "ring", .size = 2}), HasSubstr("no backend 'ring'; use auto, shm, gloo"));
  EXPECT_THAT(refusal({.backend = "shm", .size = 2}), HasSubstr("needs a store"));
  EXPECT_THAT(refusal({.rank = 2, .size = 2}), HasSubstr("rank 2 is not a rank of a group of 2"));
  EXPECT_THAT(refusal({.backend = "dry_run", .size = 2, .global_ranks = {5}}), HasSubstr("2 ranks but 1 global ranks"));
  EXPECT_THAT(refusal({.backend = "threads", .size = 2, .thread_segment = make_thread_segment(3)}),
              HasSubstr("made for 3"));
  for (const int timeout : {0, -5})
    EXPECT_THAT(refusal({.size = 2, .store = fresh_store(), .timeout = std::chrono::milliseconds(timeout)}),
                AllOf(HasSubstr("group 'world': timeout"), HasSubstr("ms must be above 0")));
}

TEST(Factory, NcclWithoutAGpuIsOneClearRefusal) {
  if (base::gpu_present()) GTEST_SKIP() << "this machine has a GPU";
  const std::string text = refusal({.backend = "nccl", .size = 2, .store = fresh_store()});
  EXPECT_THAT(text, AllOf(HasSubstr("backend nccl needs an NVIDIA GPU"), HasSubstr("use backend auto, shm or gloo")));
}

TEST(Factory, TensorsOnADeviceAreRefusedByBackendsOfTheHost) {
  for (const char* backend : {"gloo", "shm", "mpi"})
    for (const int size : {1, 2})
      EXPECT_THAT(refusal({.backend = backend, .size = size, .store = fresh_store(), .on_device = true}),
                  AllOf(HasSubstr(backend), HasSubstr("host memory only; use auto, nccl or threads")));
  EXPECT_THAT(refusal({.size = 2, .store = fresh_store(), .sealed = true, .on_device = true}),
              HasSubstr("backend nccl cannot encrypt"));
  EXPECT_EQ(make_communicator({.backend = "dry_run", .size = 2, .on_device = true})->backend(), "dry_run");
  if (base::gpu_present()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_THAT(refusal({.backend = "threads", .size = 2, .store = fresh_store(), .on_device = true}),
              AllOf(HasSubstr("needs an NVIDIA GPU"), HasSubstr("use --accelerator cpu")));
  EXPECT_THAT(refusal({.on_device = true}), HasSubstr("needs an NVIDIA GPU"));
}

TEST(Factory, GivenThreadSegmentNeedsNoStore) {
  const auto segment = make_thread_segment(2);
  std::atomic<int> passed = 0;
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 2; ++rank)
      ranks.emplace_back([&, rank] {
        const auto c = make_communicator({.backend = "threads", .rank = rank, .size = 2, .thread_segment = segment});
        run_check("AllReduce", *c);
        ++passed;
      });
  }
  EXPECT_EQ(passed, 2);
}

TEST(Factory, GroupsOfOneNameWithOtherRanksDoNotMix) {
  // Two groups called "tp" over one store, made twice over.
  const auto store = fresh_store();
  std::vector<std::string> errors(4);
  {
    std::vector<std::jthread> ranks;
    for (int global = 0; global < 4; ++global)
      ranks.emplace_back([&, global] {
        try {
          const std::vector<int> members = global < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3};
          for (int attempt = 0; attempt < 2; ++attempt) {
            const auto c = make_communicator({.name = "tp",
                                              .rank = global % 2,
                                              .size = 2,
                                              .global_ranks = members,
                                              .store = store,
                                              .timeout = std::chrono::seconds(30)});
            at::Tensor t = at::full({5}, global, at::kLong);
            c->all_reduce(t, t, {})->wait();
            if (t[0].item<int64_t>() != (global < 2 ? 1 : 5)) throw std::runtime_error("groups mixed");
          }
        } catch (const std::exception& error) {
          errors[global] = error.what();
        }
      });
  }
  EXPECT_THAT(errors, Each(""));
}

TEST(Factory, MemoryThatIsNotThereIsAnErrorWithNumbers) {
  for (const char* backend : {"threads", "shm"}) {
    const auto errors = run_thread_ranks({.backend = backend, .size = 2}, [](Communicator& c) {
      try {
        c.allocate_shared(int64_t{1} << 50, c.rank() >= 0);
        throw std::runtime_error("a pebibyte was granted");
      } catch (const CommError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("allocate_shared of group 'shard' on rank 0"),
                                        HasSubstr("1125899906842624 bytes"), HasSubstr("MiB are available")));
      }
      run_check("SharedBuffers", c);  // the group is as good as new
    });
    EXPECT_THAT(errors, Each(""));
  }
}

TEST(Factory, DifferentSizesOfSharedMemoryAreNamed) {
  const auto errors = run_thread_ranks({.backend = "threads", .size = 2},
                                       [](Communicator& c) { c.allocate_shared(4096 * (1 + c.rank()), false); });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("different sizes"), HasSubstr("4096 bytes"), HasSubstr("8192 bytes"))));
}

TEST(Store, FileStoreConnectsRanksToo) {
  const std::string path = ::testing::TempDir() + "trireme_comm_file_store";
  std::filesystem::remove(path);
  for (const char* backend : {"shm", "gloo"}) {
    const auto store = c10::make_intrusive<c10d::FileStore>(path, 2);
    const auto errors = run_thread_ranks({.backend = backend, .store = store, .name = backend},
                                         [](Communicator& c) { run_check("Barrier", c); });
    EXPECT_THAT(errors, Each(""));
  }
}

struct Listener {
  Listener() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(fd, 16), 0);
    EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
    port = ntohs(address.sin_port);
  }
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  uint16_t port = 0;
};

TEST(Store, ServerTakesOverAListeningSocket) {
  const Listener listener;
  const auto server = open_store({.port = listener.port, .is_server = true, .listen_fd = listener.fd});
  EXPECT_EQ(server.port, listener.port);
  const auto client = open_store({.port = server.port, .token = server.token});
  set_text(*client.store, "key", "value");
  EXPECT_EQ(wait_for_text(*server.store, {}, "key", 0), "value");
}

TEST(Store, AClientWithoutATokenIsRefused) {
  try {
    open_store({.port = 1});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the token has 0 bytes"));
  }
}

TEST(Store, UnreachableServerIsAnErrorWithTheAddress) {
  try {
    open_store({.port = 1, .token = std::string(32, 't'), .timeout = std::chrono::milliseconds(300)});
    FAIL();
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), HasSubstr("127.0.0.1:1"));
  }
}

struct NoLonger : Error {
  using Error::Error;
};

TEST(Store, WhatIsAskedWhileItWaitsEndsTheWait) {
  StoreOptions options{.port = 1, .token = std::string(32, 't'), .timeout = std::chrono::minutes(5)};
  options.while_waiting = [] { throw NoLonger("nobody wants to wait"); };
  EXPECT_THROW(open_store(options), NoLonger);
  // A server that listens and does not answer.
  const Listener listener;
  options.port = listener.port;
  EXPECT_THROW(open_store(options), NoLonger);

  options.is_server = true;
  options.listen_fd = listener.fd;
  const auto server = open_store(options);
  const Group group{.size = 2, .timeout = std::chrono::minutes(5)};
  EXPECT_THROW(wait_for_text(*server.store, group, "key", 1), NoLonger);
  EXPECT_THROW(server.store->clone()->get("key"), NoLonger);
  for (const char* backend : {"auto", "gloo"})
    EXPECT_THROW(make_communicator({.backend = backend, .size = 2, .store = server.store}), NoLonger) << backend;
}

}  // namespace
}  // namespace trireme::comm::testing
