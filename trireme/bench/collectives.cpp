#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/bench/collective_cases.h"
#include "trireme/bench/collective_timing.h"
#include "trireme/bench/commands.h"
#include "trireme/comm/factory.h"
#include "trireme/comm/mpi/loader.h"
#include "trireme/config/choices.h"
#include "trireme/settings/validate.h"
#include "trireme/train/ranks.h"

namespace trireme::bench {
namespace {

std::vector<std::string> backends_of(const Settings& settings, const launch::RankEnvironment& environment) {
  if (settings.comm.backend != comm::Backend::automatic) return {std::string(config::name_of(settings.comm.backend))};
  if (!environment.by_mpirun) return {"shm", "gloo"};
  const std::string why_no_mpi = comm::why_no_mpi();
  if (why_no_mpi.empty()) return {"shm", "gloo", "mpi"};
  if (environment.global_rank == 0) base::info("bench collectives leaves mpi out: {}", why_no_mpi);
  return {"shm", "gloo"};
}

class CollectivesBench {
 public:
  CollectivesBench(const Settings& settings, const launch::RankEnvironment& environment)
      : settings_(settings), environment_(environment), budget_(Budget::of(settings.bench.quick)) {
    budget_.seconds = std::min(budget_.seconds, 0.15);
    if (settings.comm.backend == comm::Backend::mpi)
      train::require_same_settings(settings, environment, train::group_options(settings, environment));
    else
      store_ = train::open_job_store(settings, environment);
  }

  comm::CommunicatorPtr connect(const std::string& backend) {
    comm::GroupOptions options = train::group_options(settings_, environment_);
    options.name = fmt::format("bench-{}", connected_++);
    options.backend = backend;
    options.rank = environment_.global_rank;
    options.size = environment_.world_size;
    options.store = store_.store;
    options.sealed = options.sealed && backend == "gloo";
    options.bf16_sums = false;
    return comm::make_communicator(options);
  }

  const Budget& budget() const { return budget_; }

 private:
  const Settings& settings_;
  const launch::RankEnvironment& environment_;
  Budget budget_;
  comm::StoreHandle store_;
  int connected_ = 0;
};

std::string limit_name(int64_t bytes, int ranks) {
  return fmt::format("copy of {}, {} ranks at once", base::human_bytes(bytes), ranks);
}

Row row_of(const CollectiveCase& c, const comm::CommunicatorPtr& comm, int64_t bytes) {
  return {.name = c.name,
          .shape = fmt::format("{}, {}, {} ranks{}", base::human_bytes(bytes), comm->backend(), comm->size(),
                               c.buffers == Buffers::shared ? ", shared buffers" : ""),
          .unit = "GB/s",
          .limit = limit_name(bytes, comm->size())};
}

void check_result(const CollectiveCase& c, const CollectiveCall& call, const comm::CommunicatorPtr& comm) {
  call.run();
  if (!call.is_right())
    throw Error(fmt::format("bench collectives: {} over {} gave a wrong result on rank {}; nothing was timed after it",
                            c.name, comm->backend(), comm->rank()));
}

void add_bandwidths(Row& row, const CollectiveCase& c, int64_t bytes, int ranks) {
  const double algbw = static_cast<double>(bytes) / row.median_seconds * 1e-9;
  row.values = {{"algbw GB/s", algbw}, {"busbw GB/s", algbw * c.bus_factor(ranks)}};
}

}  // namespace

void check_collectives(const Settings& settings, const launch::RankEnvironment& environment) {
  const int64_t ranks = environment.launched ? environment.world_size : world_size(settings);
  if (ranks < 2) throw UsageError("error: bench collectives needs ranks that talk to each other: --devices 2 or more");
  const comm::Backend b = settings.comm.backend;
  if (b == comm::Backend::threads || b == comm::Backend::dry_run || b == comm::Backend::nccl)
    throw UsageError(fmt::format("error: bench collectives does not time comm.backend {}; it times shm, gloo and mpi",
                                 config::name_of(b)));
}

int bench_collectives(const Settings& settings, const launch::RankEnvironment& environment,
                      const std::string& command) {
  at::set_num_threads(1);
  const std::vector<int64_t> sizes = settings.bench.quick
                                         ? std::vector<int64_t>{4 << 10, 1 << 20}
                                         : std::vector<int64_t>{4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
  const std::vector<std::string> backends = backends_of(settings, environment);
  const bool first = environment.global_rank == 0;
  CollectivesBench bench(settings, environment);
  Report report = new_report("collectives", command);
  Progress progress("bench collectives", first);
  const auto total = static_cast<int64_t>(backends.size() * (sizes.size() * collective_cases().size() + 1));
  std::map<int64_t, double> copies;
  for (const std::string& backend : backends) {
    for (const int64_t bytes : sizes) {
      // A communicator for each size: its shared memory is freed with it.
      const comm::CommunicatorPtr comm = bench.connect(backend);
      copies[bytes] = std::max(copies[bytes], copy_together(*comm, bytes));
      for (const CollectiveCase& c : collective_cases()) {
        if (c.buffers == Buffers::shared && comm->backend() != "shm") continue;
        progress.step(std::ssize(report.rows), total, backend + " " + c.name);
        const CollectiveCall call = c.make(comm, bytes);
        check_result(c, call, comm);
        Row row = row_of(c, comm, bytes);
        set_times(row, time_together(*comm, call.run, bench.budget()),
                  static_cast<double>(bytes) * c.moved(comm->size()) * 1e-9);
        add_bandwidths(row, c, bytes, comm->size());
        report.rows.push_back(row);
      }
      copies[bytes] = std::max(copies[bytes], copy_together(*comm, bytes));
    }
    const comm::CommunicatorPtr comm = bench.connect(backend);
    Row row{.name = "barrier", .shape = fmt::format("{}, {} ranks", comm->backend(), comm->size())};
    set_times(row, time_together(*comm, [&] { comm->barrier()->wait(); }, bench.budget()), 0);
    report.rows.push_back(row);
  }
  for (const auto& [bytes, rate] : copies)
    report.limits.push_back({limit_name(bytes, environment.world_size), rate * 1e-9, "GB/s"});
  if (first) deliver(report, settings);
  return 0;
}

}  // namespace trireme::bench
