// Facts: what one rank sees of its machine before a run, as plain data. Each rank gathers its own; rank 0 gets all of
// them as JSON and judges them together (judge.h). So judgements can be tested without the machines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::doctor {

struct Interface {
  std::string name, address;
  int64_t megabits = 0;  ///< a second, as negotiated; 0 if the system does not say
  int64_t mtu = 0;
};

struct Gpu {
  std::string name;
  int64_t memory_bytes = 0;
  int64_t nvlinks = 0;      ///< that are up
  std::string pcie;         ///< "5.0 x16", the current speed; empty if unknown
  std::string pcie_at_most; ///< the most that card and slot can do
};

struct Disk {
  std::string folder;   ///< where it was measured: out_dir, or its nearest parent that exists
  int64_t free_bytes = 0, measured_bytes = 0;
  double write_rate = 0, read_rate = 0;  ///< bytes a second, the writing with fsync; 0: not measured
  std::string problem;  ///< why it could not be measured
};

struct Facts {
  int rank = 0;
  std::string host;     ///< its name
  std::string machine;  ///< equal for ranks of one kernel, whatever their hosts are called
  std::string host_id;  ///< TRIREME_HOST_ID
  std::string kernel, processor;
  int64_t cores = 0, usable_cores = 0;  ///< of the machine; of this rank
  std::vector<int> cpus;                ///< that this rank may use
  double cpu_quota = 0;                 ///< 0: none
  int64_t numa_nodes = 1, threads = 1;
  int64_t memory_bytes = 0, available_bytes = 0, memory_limit_bytes = 0;  ///< limit 0: none
  int64_t shm_bytes = 0, shm_free_bytes = 0;                              ///< of /dev/shm; 0 if it is missing
  int64_t open_files = 0, open_files_at_most = 0;
  std::string own_address;  ///< what the host's name resolves to; empty if it does not resolve
  double resolve_seconds = 0;
  std::vector<Interface> interfaces;  ///< up, with an address, without the loopback
  std::string route;                  ///< name of the interface that leads to rank 0; empty: unknown
  std::string trireme, libtorch, nccl, driver;
  std::vector<Gpu> gpus;
  std::vector<std::string> backends;  ///< libraries of backends that lie beside the program: "mpi", "nccl"
  Disk disk;                          ///< measured by the first rank of each host
};

/// Gathers everything except what involves several ranks (rank, route and disk).
/// Cost      milliseconds, plus the time to look up the host's name
Facts gather_facts();

/// Cards and the libraries that drive them (gpu_facts.cpp).
void gather_gpus(Facts& facts);

/// Writes and reads a temporary file in `out_dir`, or in its nearest parent that exists. The file is smaller if the
/// disk is slow.
Disk measure_disk(const std::string& out_dir);

/// Facts as JSON, and back. Errors    InternalError for text that write_facts did not make
std::string write_facts(const Facts& facts);
Facts read_facts(const std::string& json);

}  // namespace trireme::doctor
