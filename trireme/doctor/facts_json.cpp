#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/doctor/facts.h"

namespace trireme::doctor {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Interface, name, address, megabits, mtu)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Gpu, name, memory_bytes, nvlinks, pcie, pcie_at_most)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Disk, folder, free_bytes, measured_bytes, write_rate, read_rate, problem)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Facts, rank, host, machine, host_id, kernel, processor, cores, usable_cores,
                                   cpu_quota, numa_nodes, threads, memory_bytes, available_bytes, memory_limit_bytes,
                                   shm_bytes, shm_free_bytes, open_files, open_files_at_most, own_address,
                                   resolve_seconds, interfaces, route, trireme, libtorch, nccl, driver, gpus, backends,
                                   disk)

std::string write_facts(const Facts& facts) {
  return nlohmann::json(facts).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Facts read_facts(const std::string& json) {
  try {
    return base::parse_json(json).get<Facts>();
  } catch (const nlohmann::json::exception& error) {
    throw InternalError(std::string("doctor: a rank's facts cannot be read: ") + error.what());
  }
}

}  // namespace trireme::doctor
