#include "trireme/comm/factory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "trireme/base/error.h"
#include "trireme/comm/cuda/device_loader.h"
#include "trireme/comm/dry_run.h"
#include "trireme/comm/gloo/gloo.h"
#include "trireme/comm/mpi/loader.h"
#include "trireme/comm/shared_memory/segment_communicator.h"
#include "trireme/comm/shared_memory/shm.h"

namespace trireme::comm {
namespace {
using StorePtr = c10::intrusive_ptr<c10d::Store>;

Group group_of(const GroupOptions& o) {
  return {.name = o.name,
          .rank = o.rank,
          .size = o.size,
          .global_ranks = o.global_ranks,
          .timeout = o.timeout,
          .recorder = o.recorder};
}

GlooOptions gloo_options(const GroupOptions& o) {
  return {.interface = o.interface, .sealed = o.sealed, .bf16_sums = o.bf16_sums};
}

// A prefix for this group's keys. Groups of one name differ in their ranks; a counter separates a group from an
// earlier one with the same ranks.
StorePtr own_store(const GroupOptions& o) {
  if (!o.store)
    throw UsageError(fmt::format(
        "[comm] group '{}' of {} ranks with backend {} needs a store; pass GroupOptions::store (see open_store)",
        o.name, o.size, o.backend));
  const std::string prefix = o.global_ranks.empty()
                                 ? fmt::format("trireme/{}/world", o.name)
                                 : fmt::format("trireme/{}/{}", o.name, fmt::join(o.global_ranks, "-"));
  const int64_t attempt = o.store->add(fmt::format("{}/attempts/{}", prefix, o.rank), 1);
  return c10::make_intrusive<c10d::PrefixStore>(fmt::format("{}/{}", prefix, attempt), o.store);
}

CommunicatorPtr on_segment(const Group& group, std::shared_ptr<SharedSegment> segment) {
  segment->wait_for_all(group);
  return std::make_shared<SegmentCommunicator>(group, std::move(segment));
}

CommunicatorPtr make_threads(const GroupOptions& o) {
  const Group group = group_of(o);
  auto segment = o.thread_segment ? o.thread_segment : connect_threads(group, *own_store(o));
  if (segment->size() != o.size)
    throw UsageError(fmt::format("[comm] group '{}' has {} ranks but its thread segment was made for {}", o.name,
                                 o.size, segment->size()));
  segment->join(o.rank);
  return on_segment(group, std::move(segment));
}

CommunicatorPtr make_shm_or_gloo(const GroupOptions& o) {
  const StorePtr store = own_store(o);
  if (o.backend == "gloo") return make_gloo(group_of(o), store, gloo_options(o));
  HostSegment host = connect_processes(group_of(o), *store);
  if (host.segment) return on_segment(group_of(o), std::move(host.segment));
  if (o.backend == "auto") return make_gloo(group_of(o), store, gloo_options(o));
  throw UsageError(
      fmt::format("[comm] group '{}': backend shm needs all ranks on one host, but {}; use backend auto or gloo",
                  o.name, host.why_not));
}

CommunicatorPtr make_on_device(const GroupOptions& o, bool by_nccl) {
  if (!by_nccl && o.backend != "threads")
    throw UsageError(
        fmt::format("[comm] group '{}': backend {} moves tensors in host memory only; use auto, nccl or threads for "
                    "those on a GPU, or --accelerator cpu",
                    o.name, o.backend));
  if (o.size == 1) return make_device_local(group_of(o));
  return by_nccl ? make_nccl(group_of(o), own_store(o)) : make_device_threads(group_of(o), own_store(o));
}
}  // namespace

CommunicatorPtr make_communicator(const GroupOptions& o) {
  if (o.size < 1 || o.rank < 0 || o.rank >= o.size)
    throw UsageError(fmt::format("[comm] group '{}': rank {} is not a rank of a group of {}", o.name, o.rank, o.size));
  if (o.timeout.count() <= 0)
    throw UsageError(fmt::format("[comm] group '{}': timeout {} ms must be above 0; leave it out for the usual one",
                                 o.name, o.timeout.count()));
  const bool by_nccl = o.backend == "nccl" || (o.on_device && o.backend == "auto");
  if (o.sealed && o.size > 1 && (by_nccl || o.backend == "mpi"))
    throw UsageError(fmt::format(
        "[comm] group '{}': backend {} cannot encrypt what it sends; use gloo, or leave out comm.tls on a network you "
        "trust",
        o.name, by_nccl ? "nccl" : "mpi"));
  if (o.backend == "dry_run") return make_dry_run(group_of(o), "dry_run");
  constexpr std::string_view kBackends[] = {"auto", "shm", "gloo", "mpi", "threads", "nccl"};
  if (std::ranges::find(kBackends, o.backend) == std::end(kBackends))
    throw UsageError(
        fmt::format("[comm] there is no backend '{}'; use auto, shm, gloo, mpi, threads, nccl or dry_run", o.backend));
  if (o.on_device || by_nccl) return make_on_device(o, by_nccl);
  if (o.size == 1) return make_dry_run(group_of(o), "local");
  if (o.backend == "threads") return make_threads(o);
  if (o.backend == "mpi") return make_mpi(group_of(o));
  return make_shm_or_gloo(o);
}

}  // namespace trireme::comm
