#include "thread_ranks.h"

#include <ATen/Parallel.h>

#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace trireme::comm::testing {

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
                                                       .bf16_sums = options.bf16_sums});
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
