#include "benchmarks/collectives_ranks.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cstring>
#include <functional>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "trireme/comm/factory.h"

namespace bench {

namespace {

using trireme::comm::Communicator;
using trireme::comm::CommunicatorPtr;

/// Tensors of one size: what is reduced and gathered, and where.
struct Buffers {
  at::Tensor input, output, shard;  ///< [n], [n], [n / ranks]
  std::vector<int64_t> counts;
};

/// An implementation: three calls on `Buffers` that return when they are complete.
struct Subject {
  std::string name;
  std::function<void(const Buffers&)> all_reduce;  ///< of `input`, in place
  std::function<void(const Buffers&)> reduce_scatter;
  std::function<void(const Buffers&)> all_gather;
};

Buffers make_buffers(at::Tensor input, at::Tensor output, int64_t bytes, int size) {
  const int64_t each = bytes / 4 / size;
  return {input.narrow(0, 0, each * size), output.narrow(0, 0, each * size), at::zeros({each}),
          std::vector<int64_t>(size, each)};
}

Subject ours(Communicator& c, const std::string& name) {
  return {name, [&c](const Buffers& b) { c.all_reduce(b.input, b.input, {})->wait(); },
          [&c](const Buffers& b) { c.reduce_scatter(b.shard, b.input, b.counts, {})->wait(); },
          [&c](const Buffers& b) { c.all_gather(b.output, b.shard, b.counts)->wait(); }};
}

Subject raw_gloo(c10d::ProcessGroupGloo& gloo) {
  return {"c10d_gloo",
          [&gloo](const Buffers& b) {
            std::vector<at::Tensor> tensors{b.input};
            gloo.allreduce(tensors, {})->wait();
          },
          [&gloo](const Buffers& b) {
            at::Tensor output = b.shard, input = b.input;
            gloo._reduce_scatter_base(output, input, {})->wait();
          },
          [&gloo](const Buffers& b) {
            at::Tensor output = b.output, input = b.shard;
            gloo._allgather_base(output, input, {})->wait();
          }};
}

void require(bool good, const std::string& what) {
  if (!good) throw std::runtime_error(what + " gives a wrong result");
}

void check_then_time(const Subject& s, const Buffers& b, int64_t bytes, const RankOptions& o, const Measure& m) {
  const int64_t n = b.input.numel();
  at::Tensor mine = at::empty({n}), sums = at::empty({n});
  for (int64_t i = 0; i < n; ++i) {
    mine.mutable_data_ptr<float>()[i] = value(i, o.rank);
    sums.mutable_data_ptr<float>()[i] = sum(i, o.size);
  }
  b.input.copy_(mine);
  s.all_reduce(b);
  require(at::equal(b.input, sums), s.name + " all_reduce");
  m.synchronise();
  b.input.copy_(mine);
  b.output.zero_();
  s.reduce_scatter(b);
  s.all_gather(b);
  require(at::equal(b.output, sums), s.name + " reduce_scatter or all_gather");
  m.synchronise();
  b.input.zero_();  // sums of zeros stay what they are, however often
  b.output.zero_();
  time_calls(m, o.rank, s.name, Operation::all_reduce, bytes, [&] { s.all_reduce(b); });
  time_calls(m, o.rank, s.name, Operation::reduce_scatter, bytes, [&] { s.reduce_scatter(b); });
  time_calls(m, o.rank, s.name, Operation::all_gather, bytes, [&] { s.all_gather(b); });
}

c10::intrusive_ptr<c10d::ProcessGroupGloo> make_raw_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                         int size) {
  auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(120));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface("lo"));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>("raw", store), rank, size,
                                                     std::move(options));
}

// A memcpy of the size by all ranks at once. An all_reduce in place must move as much: a rank reads one slice of each
// part and writes one slice of each part.
void time_copy(const Buffers& b, int64_t bytes, const RankOptions& o, const Measure& m) {
  time_calls(m, o.rank, "memcpy", Operation::all_reduce, bytes,
             [&] { std::memcpy(b.output.mutable_data_ptr(), b.input.const_data_ptr(), b.input.nbytes()); });
}

}  // namespace

void run_rank(const RankOptions& o) {
  at::set_num_threads(1);
  const auto store =
      trireme::comm::open_store({.port = o.store_port, .token = std::getenv("TRIREME_BENCH_TOKEN")}).store;
  const auto make = [&](const char* backend) {
    return trireme::comm::make_communicator(
        {.name = std::string("bench_") + backend, .backend = backend, .rank = o.rank, .size = o.size, .store = store});
  };
  const CommunicatorPtr shm = make("shm");
  const auto slowest = [&](std::vector<double>& us) {
    const at::Tensor t = at::from_blob(us.data(), {static_cast<int64_t>(us.size())}, at::kDouble);
    shm->all_reduce(t, t, {.op = trireme::comm::ReduceOp::max})->wait();
  };
  const auto barrier = [&] { shm->barrier()->wait(); };
  const int64_t largest = std::ranges::max(o.sizes), n = largest / 4;
  const auto symmetric = shm->allocate_shared(largest, false), host = shm->allocate_shared(largest, true);
  const at::Tensor symmetric_memory = at::from_blob(symmetric.mine, {n}, at::kFloat).zero_();
  const at::Tensor host_memory = at::from_blob(host.mine, {n}, at::kFloat);
  const at::Tensor private_input = at::zeros({n}), private_output = at::zeros({n});
  const Measure quick{.synchronise = barrier, .slowest = slowest, .calls_of_4_kib = o.size > 2 ? 100 : 1000};
  Measure slow = quick;
  slow.calls_of_4_kib = 10;
  slow.batches = 7;
  time_calls(quick, o.rank, "shm", Operation::barrier, 0, barrier);
  for (const int64_t bytes : o.sizes) {
    const Buffers on_symmetric = make_buffers(symmetric_memory, host_memory, bytes, o.size);
    const Buffers on_private = make_buffers(private_input, private_output, bytes, o.size);
    time_copy(on_private, bytes, o, quick);
    check_then_time(ours(*shm, "shm"), on_symmetric, bytes, o, quick);
    check_then_time(ours(*shm, "shm_private"), on_private, bytes, o, quick);
  }
  if (o.shm_only) return;
  const CommunicatorPtr gloo = make("gloo");
  const auto raw = make_raw_gloo(store, o.rank, o.size);
  for (const int64_t bytes : o.sizes) {
    const Buffers on_private = make_buffers(private_input, private_output, bytes, o.size);
    check_then_time(ours(*gloo, "gloo"), on_private, bytes, o, slow);
    check_then_time(raw_gloo(*raw), on_private, bytes, o, slow);
  }
  barrier();
}

}  // namespace bench
