// Runs a function as N ranks on N threads and hands back what each rank threw.
#pragma once

#include "trireme/comm/factory.h"

#include <functional>

namespace trireme::comm::testing {

using RankBody = std::function<void(Communicator&)>;

/// The backend gloo with GroupOptions::sealed.
constexpr char kSealedGloo[] = "sealed_gloo";

struct ThreadRanks {
  std::string backend;  ///< of GroupOptions, or kSealedGloo
  int size = 2;
  std::chrono::milliseconds timeout{60'000};
  c10::intrusive_ptr<c10d::Store> store;  ///< null: a HashStore for each run
  std::string name = "shard";
  bool bf16_sums = false;
  bool on_device = false;  ///< as GroupOptions; each rank has a stream of its own, and tensor_device is the GPU
};

/// An empty store of this process.
c10::intrusive_ptr<c10d::Store> fresh_store();

/// Empty text for a rank that did not throw. The communicators are destroyed on their threads.
std::vector<std::string> run_thread_ranks(const ThreadRanks& options, const RankBody& body);

}  // namespace trireme::comm::testing
