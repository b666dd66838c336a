// Facts and results of pairs as the JSON text that ranks send.
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/doctor/facts.h"
#include "trireme/doctor/pairs.h"

namespace trireme::doctor {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Interface, name, address, megabits, mtu)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Gpu, name, memory_bytes, nvlinks, pcie, pcie_at_most)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Disk, folder, free_bytes, measured_bytes, write_rate, read_rate, problem)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Facts, rank, host, machine, host_id, kernel, processor, cores, usable_cores, cpus,
                                   cpu_quota, numa_nodes, threads, memory_bytes, available_bytes, memory_limit_bytes,
                                   shm_bytes, shm_free_bytes, open_files, open_files_at_most, own_address,
                                   resolve_seconds, interfaces, route, trireme, libtorch, nccl, driver, gpus, backends,
                                   disk)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PairResult, first, second, backend, latency_seconds, forth_rate, back_rate,
                                   clock_seconds, clock_error_seconds, problem)

namespace {

std::string write(const nlohmann::json& json) { return base::json_text(json); }

template <typename T>
T read(const std::string& text) {
  try {
    return base::parse_json(text).get<T>();
  } catch (const nlohmann::json::exception& error) {
    throw InternalError(std::string("doctor: a rank's message cannot be read: ") + base::json_reason(error));
  }
}

}  // namespace

std::string write_facts(const Facts& facts) { return write(facts); }
Facts read_facts(const std::string& json) { return read<Facts>(json); }
std::string write_pair(const PairResult& result) { return write(result); }
PairResult read_pair(const std::string& json) { return read<PairResult>(json); }

}  // namespace trireme::doctor
