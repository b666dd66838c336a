// Ring 2 on a GPU: the suite of checks for thread ranks that share one, a group of one rank, and NCCL with one rank;
// the same bits as on the CPU; failures. Each test skips itself on a machine without a GPU.
#include <ATen/CPUGeneratorImpl.h>

#include <cstdlib>

#include "comm_checks.h"
#include "failure_suite.h"
#include "trireme/comm/cuda/device_loader.h"

namespace trireme::comm::testing {
namespace {

struct Case {
  int size;
  const Check* check;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.check->name << " on " << c.size << " ranks of one GPU"; }

class Device : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!base::gpu_present()) GTEST_SKIP() << "this machine has no GPU";
  }
};

// The groups of one are no threads of their own.
class OnGpu {
 public:
  OnGpu() { tensor_device = at::kCUDA; }
  ~OnGpu() { tensor_device = at::kCPU; }
};

TEST_P(Device, ThreadRanksPass) {
  const Case& c = GetParam();
  const auto errors =
      run_thread_ranks({.backend = "threads", .size = c.size, .on_device = true}, [&](Communicator& communicator) {
        EXPECT_EQ(communicator.backend(), c.size == 1 ? "local" : "threads");
        run_check(c.check->name, communicator);
      });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int size : {1, 2, 3, 4})
    for (const Check& check : all_checks()) {
      const std::string name = check.name;
      if (name == "Large" && size != 2) continue;
      if (name == "Messages" && size == 1) continue;  // nobody to talk to
      all.push_back({size, &check});
    }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Communicator, Device, ::testing::ValuesIn(cases()), [](const auto& info) {
  return std::to_string(info.param.size) + "Ranks" + info.param.check->name;
});

class Nccl : public Device {};

TEST_P(Nccl, OneRankPasses) {
  const auto c = make_nccl({.name = "alone"}, fresh_store());
  EXPECT_EQ(c->backend(), "nccl");
  const OnGpu on_gpu;
  EXPECT_NO_THROW(run_check(GetParam().check->name, *c));
}

std::vector<Case> of_one_rank() {
  std::vector<Case> all = cases();
  std::erase_if(all, [](const Case& c) { return c.size != 1; });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Communicator, Nccl, ::testing::ValuesIn(of_one_rank()),
                         [](const auto& info) { return std::string(info.param.check->name); });

class DeviceGroups : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!base::gpu_present()) GTEST_SKIP() << "this machine has no GPU";
  }
};

TEST_F(DeviceGroups, AutoIsNcclAndOneRankIsLocal) {
  for (const char* backend : {"auto", "nccl", "threads"})
    EXPECT_EQ(make_communicator({.backend = backend, .on_device = true})->backend(), "local");
  const OnGpu on_gpu;
  const auto c = make_communicator({.on_device = true});
  at::Tensor in = floats(10).fill_(2), out = floats(10).fill_(1);
  const WorkPtr work = c->reduce_scatter(out, in, std::vector<int64_t>{10}, {.accumulate = true});
  work->wait();
  EXPECT_TRUE(at::equal(out.cpu(), at::full({10}, 3.0f)));
  EXPECT_TRUE(work->poll());
  EXPECT_THROW(c->broadcast(at::zeros({10}), 0), ShapeError);
}

at::Tensor noise(int64_t n, int seed, at::ScalarType dtype) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn({n}, generator, at::dtype(at::kFloat)).mul_(100).to(tensor_device, dtype);
}

// Every operation that folds or moves, on random numbers; the results of one rank, in the CPU's memory.
std::vector<at::Tensor> results_of(Communicator& c, at::ScalarType in, at::ScalarType out) {
  std::vector<int64_t> counts;
  int64_t whole = 0;
  for (int k = 0; k < c.size(); ++k) whole += counts.emplace_back(k == 1 ? 0 : 4099 + 1000 * k);
  const int64_t own = counts[c.rank()];
  const auto data = [&](int64_t n, int salt, at::ScalarType dtype) { return noise(n, 100 * salt + c.rank(), dtype); };
  std::vector<at::Tensor> results;
  for (const ReduceOptions options :
       {ReduceOptions{}, ReduceOptions{.accumulate = true}, ReduceOptions{.op = ReduceOp::max}}) {
    results.push_back(data(own, 1, out));
    c.reduce_scatter(results.back(), data(whole, 2, in), counts, options)->wait();
    results.push_back(data(whole, 3, out));
    c.all_reduce(results.back(), data(whole, 4, in), options)->wait();
    results.push_back(data(whole, 5, in));
    c.all_reduce(results.back(), results.back(), options)->wait();
    for (int root = 0; root < c.size(); ++root) {
      results.push_back(data(whole, 6, out));
      c.reduce(results.back(), data(whole, 7, in), root, options)->wait();
    }
  }
  results.push_back(data(whole, 8, in));
  c.all_gather(results.back(), data(own, 9, in), counts)->wait();
  for (at::Tensor& result : results) result = result.cpu();
  return results;
}

TEST_F(DeviceGroups, SumsHaveTheBitsOfThoseOnTheCpu) {
  const std::pair<at::ScalarType, at::ScalarType> kinds[] = {{at::kFloat, at::kFloat},
                                                             {at::kBFloat16, at::kFloat},
                                                             {at::kBFloat16, at::kBFloat16},
                                                             {at::kDouble, at::kDouble}};
  for (const int size : {1, 2, 3, 4}) {
    for (const auto& [in, out] : kinds) {
      std::vector<std::vector<at::Tensor>> results[2];
      for (const bool on_device : {false, true}) {
        results[on_device].resize(size);
        const auto errors = run_thread_ranks(
            {.backend = "threads", .size = size, .on_device = on_device},
            [&, in = in, out = out](Communicator& c) { results[on_device][c.rank()] = results_of(c, in, out); });
        for (const std::string& error : errors) ASSERT_EQ(error, "");
      }
      for (int rank = 0; rank < size; ++rank)
        for (size_t i = 0; i < results[0][rank].size(); ++i)
          EXPECT_TRUE(at::equal(results[0][rank][i], results[1][rank][i]))
              << "result " << i << " of rank " << rank << " of " << size << ", " << in << " into " << out;
    }
  }
}

// No call blocks the host: ranks that start theirs in another order than their peers meet all the same.
TEST_F(DeviceGroups, CallsAndMessagesStartWithoutThePeers) {
  const auto errors = run_thread_ranks({.backend = "threads", .size = 2, .on_device = true}, [](Communicator& c) {
    const int peer = 1 - c.rank();
    at::Tensor sum = floats(1000).fill_(c.rank() + 1), theirs = floats(50);
    std::vector<WorkPtr> works;
    const auto reduce = [&] { works.push_back(c.all_reduce(sum, sum, {})); };
    const auto exchange = [&] {
      works.push_back(c.receive(theirs, peer));
      works.push_back(c.send(floats(50).fill_(c.rank() + 1), peer));
    };
    if (c.rank() == 0) reduce();
    exchange();
    if (c.rank() == 1) reduce();
    for (const WorkPtr& work : works) work->wait();
    if (!at::equal(sum.cpu(), at::full({1000}, 3.0f))) throw std::runtime_error("another sum");
    if (!at::equal(theirs.cpu(), at::full({50}, float(peer + 1)))) throw std::runtime_error("another message");
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// Tensors and works that are given up at once live until the GPU is through; a rank may leave when it has posted.
TEST_F(DeviceGroups, NothingNeedsToBeHeldOrWaitedFor) {
  const auto errors = run_thread_ranks({.backend = "threads", .size = 2, .on_device = true}, [](Communicator& c) {
    const int64_t n = 1 << 20;
    for (int i = 0; i < 50; ++i) {
      c.all_reduce(floats(n), floats(n).fill_(1), {});
      if (c.rank() == 0) {
        c.send(floats(n).fill_(i), 1);
      } else {
        at::Tensor t = floats(n);
        c.receive(t, 0)->wait();
        if (!at::equal(t.cpu(), at::full({n}, float(i)))) throw std::runtime_error("overwritten on its way");
      }
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// By default NCCL's watchdog throws in its own thread, which ends the process. Two ranks cannot share a GPU under NCCL,
// so a lost peer is not tried here; what happens then is written in comm/cuda/nccl.cpp.
TEST_F(DeviceGroups, NcclIsToldToRaiseWhereAPeerIsLost) {
  constexpr const char* kName = "TORCH_NCCL_ASYNC_ERROR_HANDLING";
  for (const char* given : {"", "1"}) {
    *given == '\0' ? unsetenv(kName) : setenv(kName, given, 1);
    (void)make_nccl({.name = "alone"}, fresh_store());
    EXPECT_STREQ(std::getenv(kName), *given == '\0' ? "2" : given);
  }
  unsetenv(kName);
}

constexpr FailingBackend kOnDevice[] = {{"threads", true}};

INSTANTIATE_TEST_SUITE_P(OnDevice, Failure, ::testing::ValuesIn(kOnDevice),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace trireme::comm::testing
