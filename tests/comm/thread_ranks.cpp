#include "thread_ranks.h"

#include <ATen/Parallel.h>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "tensor_device.h"

namespace trireme::comm::testing {

namespace {

c10::Stream stream_of_gpu() {
  const c10::Device gpu(at::kCUDA, 0);
  return c10::impl::VirtualGuardImpl(gpu.type()).getStreamFromGlobalPool(gpu);
}

}  // namespace

c10::intrusive_ptr<c10d::Store> fresh_store() { return c10::make_intrusive<c10d::HashStore>(); }

std::vector<std::string> run_thread_ranks(const ThreadRanks& options, const RankBody& body) {
  const auto store = options.store ? options.store : fresh_store();
  const bool sealed = options.backend == kSealedGloo;
  std::vector<std::string> errors(options.size);
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < options.size; ++rank) {
      threads.emplace_back([&, rank] {
        at::set_num_threads(1);  // the ranks share the cores
        try {
          const auto communicator = make_communicator({.name = options.name,
                                                       .backend = sealed ? "gloo" : options.backend,
                                                       .rank = rank,
                                                       .size = options.size,
                                                       .store = store,
                                                       .timeout = options.timeout,
                                                       .sealed = sealed,
                                                       .on_device = options.on_device,
                                                       .bf16_sums = options.bf16_sums});
          const std::optional<c10::StreamGuard> on_stream =
              options.on_device ? std::optional<c10::StreamGuard>(stream_of_gpu()) : std::nullopt;
          if (options.on_device) tensor_device = at::kCUDA;
          body(*communicator);
        } catch (const std::exception& error) {
          errors[rank] = error.what();
        }
      });
    }
  }
  return errors;
}

}  // namespace trireme::comm::testing
