// Makes the communicator of a group from options: by backend name, or by topology ("auto").
#pragma once

#include "trireme/comm/c10d_store.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/shared_memory/threads.h"

namespace trireme::comm {

class FlightRecorder;

struct GroupOptions {
  std::string name = "world";           ///< groups that share ranks need different names
  std::string backend = "auto";         ///< auto, shm, gloo, mpi, threads, nccl or dry_run
  int rank = 0;                         ///< in the group
  int size = 1;
  std::vector<int> global_ranks = {};   ///< by group rank; empty: the group is the world
  c10::intrusive_ptr<c10d::Store> store = {};  ///< not needed for a size of 1, dry_run, mpi, or with thread_segment
  std::chrono::milliseconds timeout{300'000};  ///< longest wait without any progress, above 0
  std::shared_ptr<SharedSegment> thread_segment = {};  ///< threads: see make_thread_segment; null: found by the store
  std::shared_ptr<FlightRecorder> recorder = {};  ///< null: nothing is recorded
  std::string interface = "lo";  ///< network interface of gloo; empty: the host's default
  bool sealed = false;  ///< gloo: messages are encrypted (GlooOptions); refused for mpi and nccl, which cannot
  bool on_device = false;  ///< tensors are on this rank's GPU, the thread's current device; nccl requires it
  bool bf16_sums = false;  ///< gloo: terms of fp32 sums are sent as bf16 (GlooOptions); other backends ignore it
};

/// Collective over the ranks of the group (each calls with its own rank); returns when all have joined.
/// "auto": a group of one costs nothing; ranks that provably share a host use shm; others use gloo. With on_device,
/// "auto" means nccl, "threads" means ranks that share one GPU, and a group of one needs neither.
///
/// While one user of a TCPStore client waits, its other users are blocked. So each thread rank needs its own client.
/// Errors    UsageError for options that do not fit, nccl or on_device without a GPU, on_device over gloo, shm or mpi,
///           mpi without mpirun, shm across hosts, a sealed group over mpi or nccl; CommError naming the ranks that
///           have not joined within the timeout
CommunicatorPtr make_communicator(const GroupOptions& options);

}  // namespace trireme::comm
