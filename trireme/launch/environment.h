// Who am I among the ranks: the environment that a launcher gives to each rank, read strictly.
//
// Trireme's own launcher, torchrun and a user's shell all speak the same variables (RANK, WORLD_SIZE, LOCAL_RANK,
// LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT). A number that is no number, or two that contradict each other,
// would show up minutes later as a hang in the rendezvous; here they are one sentence before anything starts.
//
// Open MPI's mpirun (OMPI_COMM_WORLD_RANK and so on), MPICH's (PMI_RANK) and Slurm's srun (SLURM_PROCID) have words of
// their own for the same numbers. They count where none of the others is set, in this order, for mpirun inside a
// Slurm job leaves srun's words about its own helpers behind. They name no place to meet: meeting_file.h does.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::launch {

struct RankEnvironment {
  int global_rank = 0;
  int world_size = 1;
  int local_rank = 0;        ///< among the ranks of this host
  int local_world_size = 1;  ///< ranks on this host
  int node_rank = 0;         ///< GROUP_RANK, else NODE_RANK, else 0
  int num_nodes = 1;         ///< world_size / local_world_size where no launcher says it
  std::string master_address;  ///< empty when no launcher started this process
  int master_port = 0;         ///< 0 when no launcher started this process
  int store_fd = -1;           ///< rank 0 of our launcher: a listening socket at master_port, to be taken over
  bool port_is_taken = false;    ///< torchrun's agent has a store of its own at master_port, which asks no token
  int token_fd = -1;             ///< a rank of our launcher: inherited, holds the job's token
  std::string token = {};        ///< what was read from it; empty: the ranks find it in a file (meeting_file.h)
  std::string meeting_file = {}; ///< where place and token stand anew when those here lead nowhere; empty: nowhere
  int restart_count = 0;         ///< attempts before this one; keys in a shared store are prefixed by it
  std::string run = {};          ///< the same for all attempts of a run; empty: the launcher does not say
  std::string job_id;            ///< the same on all ranks, new for each job; empty when unknown
  bool launched = false;         ///< this process is one of a launcher's ranks
  std::string launcher;          ///< what a sentence calls it: "torchrun", "srun", "mpirun"; empty: not launched
  std::vector<std::string> hosts;  ///< by node, where the launcher says
  bool by_mpirun = false;        ///< Open MPI can start here: mpirun is the launcher, or srun --mpi=pmix
  bool unstarted_by_accelerate = false;  ///< asked for several processes, it started this one as if it were alone
  int unstarted_tasks = 0;  ///< tasks that Slurm's job asks for though srun did not start this process; 0: none

  /// Whether this rank serves the store at master_address:master_port; the others connect to it.
  bool hosts_store() const { return launched && global_rank == 0; }
  /// Whether nobody has told the ranks the token by which they know each other.
  bool has_no_token() const { return launched && world_size > 1 && token.empty(); }
};

/// Looks a variable up: null when it is not set.
using EnvironmentLookup = std::function<const char*(const char* name)>;

/// Reads the ranks' variables through `lookup`.
///
/// With none of RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE set the other launchers' variables are read; without
/// those too the answer is a world of one. Only other launchers' ranks may go without MASTER_ADDR and MASTER_PORT.
/// Errors    UsageError naming the variable and its value: not a number, out of range, missing, contradictory
RankEnvironment parse_rank_environment(const EnvironmentLookup& lookup);

/// The same from this process' environment; the inherited descriptors are checked and closed to grandchildren.
///
/// Errors    as above; UsageError if TRIREME_STORE_FD is not a listening socket
RankEnvironment rank_environment();

/// Whether a launcher's word for a rank is set in this process' environment; the first look, before anything is read.
bool was_launched();

}  // namespace trireme::launch
