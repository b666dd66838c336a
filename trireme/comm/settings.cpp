#include "trireme/comm/settings.h"

#include <fmt/format.h>

#include "trireme/config/problems.h"

namespace trireme::comm {

std::span<const config::Choice<Backend>> choices_of(Backend) {
  static const std::vector<config::Choice<Backend>> kTable = {
      {Backend::automatic, "auto", {}},
      {Backend::shm, "shm", {}},
      {Backend::gloo, "gloo", {}},
      {Backend::mpi, "mpi", {}},
      {Backend::threads, "threads", {}},
      {Backend::nccl, "nccl", {}},
      {Backend::dry_run, "dry_run", {"dry-run"}},
  };
  return kTable;
}

std::span<const config::Choice<Compression>> choices_of(Compression) {
  static const std::vector<config::Choice<Compression>> kTable = {{Compression::none, "none", {"false"}},
                                                                  {Compression::bf16, "bf16", {"bf16_compress"}}};
  return kTable;
}

namespace {
// With shared memory nothing is sent; mpi and nccl have no compression yet.
void check_compression(const CommSettings& s, config::Problems& problems) {
  if (s.compression == Compression::none) return;
  if (s.backend == Backend::automatic || s.backend == Backend::gloo || s.backend == Backend::dry_run) return;
  problems.add(fmt::format("backend {} does not compress gradients", config::name_of(s.backend)), {},
               "comm.compression bf16 needs comm.backend gloo, or auto (there it applies only between machines)");
}

// comm.tls is refused if the backend cannot encrypt.
void check_tls(const CommSettings& s, config::Problems& problems) {
  if (!s.tls.value_or(false) || (s.backend != Backend::mpi && s.backend != Backend::nccl)) return;
  problems.add(fmt::format("backend {} cannot encrypt what it sends", config::name_of(s.backend)), {},
               "comm.tls needs comm.backend gloo, or auto (there it applies only between machines); with other "
               "backends use a network you trust, or a tunnel (WireGuard, IPsec)");
}
}  // namespace

void check_computes(const CommSettings& s, int64_t world_size, config::Problems& problems) {
  if (s.backend == Backend::dry_run)
    problems.add("backend dry_run moves nothing between ranks, so no result would be right", {},
                 "comm.backend dry_run is for plans (trireme explain ...); to compute take auto, shm, gloo or mpi");
  if (s.backend == Backend::threads && world_size > 1)
    problems.add("backend threads connects threads of one process, but ranks are separate processes", {},
                 "comm.backend threads is for programs that use the library; here take auto, shm or gloo");
}

config::Section section(CommSettings& s) {
  return {.name = "comm",
          .title = "communication",
          .rows =
              {
                  {"comm.backend", &s.backend,
                   "how ranks communicate: auto is shm on one machine, gloo or nccl between several"},
                  {"comm.timeout",
                   &s.timeout,
                   "longest wait in a collective without any progress; one that waits longer fails the job. Waits for "
                   "texts and "
                   "rewards of other ranks have no limit",
                   {.above = 0}},
                  {"comm.compression", &s.compression,
                   "bf16 sends fp32 gradients between ranks as bf16 and sums them in fp32, in rank order; needs "
                   "backend gloo, and changes nothing where gradients are bf16 already (bf16-mixed)"},
                  {"comm.tls",
                   &s.tls,
                   "encrypts what gloo sends between machines, so that nobody on the network can read or change it: "
                   "AES-256-GCM with a key from the store, over TLS; costs a pass over the bytes on both sides",
                   {.absent = "null", .when_absent = "true between machines, false inside of one"}},
              },
          .others =
              {
                  {{"process_group_timeout", "ddp_timeout"}, "the time a collective may take is comm.timeout"},
              },
          .check = [&s](config::Problems& problems) {
            check_compression(s, problems);
            check_tls(s, problems);
          }};
}

}  // namespace trireme::comm
