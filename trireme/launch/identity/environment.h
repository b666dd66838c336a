// Reads this process's rank, strictly, from the environment variables that a launcher gives to each rank.
//
// Trireme's own launcher, torchrun and a user's shell all use the same variables (RANK, WORLD_SIZE, LOCAL_RANK,
// LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT). A malformed number, or two numbers that contradict each other, would
// appear minutes later as a hang in the rendezvous. Here they are refused with one sentence before anything starts.
//
// Open MPI's mpirun (OMPI_COMM_WORLD_RANK and so on), MPICH's (PMI_RANK) and Slurm's srun (SLURM_PROCID) have their own
// variables for the same numbers. They are read only if none of the above is set, and in this order: mpirun inside a
// Slurm job leaves srun's variables set, which describe mpirun's helper processes. No such variable says where ranks
// meet; meeting_file.h finds that.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme::store {
class Server;
}

namespace trireme::launch {

struct RankEnvironment {
  int global_rank = 0;
  int world_size = 1;
  int local_rank = 0;  ///< among the ranks of this host
  int local_world_size = 1;  ///< ranks on this host
  int node_rank = 0;  ///< GROUP_RANK, else NODE_RANK, else 0
  int num_nodes = 1;  ///< world_size / local_world_size if the launcher does not give it
  bool local_is_unknown = false;  ///< the four numbers above are yet to be found (machines/local_ranks.h)
  std::optional<int> said_local_rank = {};  ///< LOCAL_RANK without LOCAL_WORLD_SIZE: what will be found must agree
  std::string master_address;  ///< empty when no launcher started this process
  int master_port = 0;  ///< 0 when no launcher started this process
  int store_fd = -1;  ///< rank 0 of Trireme's launcher: an inherited socket that listens at master_port
  std::shared_ptr<store::Server> server = {};  ///< rank 0: serves the job's store already (machines/local_ranks.h)
  bool port_is_taken = false;  ///< torchrun's agent has its own store at master_port, without a token
  int token_fd = -1;  ///< a rank of Trireme's launcher: an inherited descriptor with the job's token (its secret)
  std::string token = {};  ///< read from token_fd; empty: the ranks read it from a file (meeting_file.h)
  std::string meeting_file = {};  ///< may hold a newer address if nobody answers at master_address; empty: no file
  int restart_count = 0;  ///< attempts before this one; the prefix of this attempt's keys in a shared store
  std::string run = {};  ///< the run's name, the same for all its attempts; empty: unknown
  std::string job_id;  ///< the same on all ranks, new for each job; empty when unknown
  bool launched = false;  ///< this process is one of a launcher's ranks
  std::string launcher;  ///< the launcher's name in messages: "torchrun", "srun", "mpirun"; empty: not launched
  std::vector<std::string> hosts;  ///< host names, by node, if the launcher gives them
  bool by_mpirun = false;  ///< MPI_Init works here: the launcher is mpirun, or srun --mpi=pmix
  bool unstarted_by_accelerate = false;  ///< accelerate was asked for several processes, but started only this one
  int unstarted_tasks = 0;  ///< the Slurm job's number of tasks if srun did not start this process; else 0

  /// Whether this rank serves the store at master_address:master_port.
  bool hosts_store() const { return launched && global_rank == 0; }
  /// Whether the launcher has given the ranks no token.
  bool has_no_token() const { return launched && world_size > 1 && token.empty(); }
};

/// The value of a variable; null if it is not set.
using EnvironmentLookup = std::function<const char*(const char* name)>;

/// Reads the ranks' variables through `lookup`.
///
/// RANK and WORLD_SIZE may come without LOCAL_WORLD_SIZE. Then the local numbers are the same if MASTER_ADDR is a
/// loopback address; otherwise the ranks find them when they meet. A LOCAL_RANK must agree with what is found.
///
/// If none of RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE is set, the variables of other launchers are read. If
/// those are missing too, the result is a world of one. Only ranks of other launchers may lack MASTER_ADDR and
/// MASTER_PORT.
/// Errors    UsageError naming the variable and its value: not a number, out of range, missing, contradictory
RankEnvironment parse_rank_environment(const EnvironmentLookup& lookup);

/// The same from this process's environment. It checks the inherited descriptors and hides them from child processes.
/// Errors    as above; UsageError if TRIREME_STORE_FD is not a listening socket
RankEnvironment rank_environment();

/// Whether this process's environment has any launcher's variable for a rank. Quick: it reads no value.
bool was_launched();

}  // namespace trireme::launch
