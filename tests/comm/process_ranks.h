// Starts N processes of the helper comm_rank by exec and collects what they print and how they end.
#pragma once

#include <string>
#include <vector>

namespace trireme::comm::testing {

struct ProcessRank {
  std::string output;
  int exit_code = -1;    ///< -1 when a signal ended it
  int signal = 0;
};

struct ProcessRanks {
  std::string backend = "shm";
  int size = 2;
  std::string part = "checks";
};

/// Returns when all have ended; none is left behind.
std::vector<ProcessRank> run_process_ranks(const ProcessRanks& options);

}  // namespace trireme::comm::testing
