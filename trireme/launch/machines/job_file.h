// Job files for schedulers, made from the user's command. Pure functions; UsageError for words with control characters.
// A training that must stop saves in time, exits with 75, is queued again and continues from its newest checkpoint.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "trireme/launch/supervise/stop_signal.h"

namespace trireme::launch {

struct JobFile {
  std::string program;  ///< path of trireme
  std::vector<std::string> arguments;  ///< subcommand and options, except those for printing (launch.print, ...)
  std::string folder;  ///< where the command was typed; the job runs there
  std::string out_dir;
  int num_nodes = 1, ranks_per_node = 1, threads_per_rank = 1;
  bool on_gpus = false;  ///< each rank needs one
  std::chrono::seconds grace{30};  ///< time that the run needs to stop and save
  int master_port = 29500;  ///< for k8s_file
  std::string image, claim, mount;  ///< for k8s_file: container image, PersistentVolumeClaim, its path in the pods
  std::vector<std::string> hosts;  ///< for host_file
  WhenStopped when_stopped = WhenStopped::resumes;  ///< one that does not go on is not asked to stop
};

/// A batch script. It has one task per machine, which starts that machine's ranks. Slurm signals the time limit early
/// enough for `grace`, if the command goes on when it is given again. Then the job is requeued if its exit code is 75.
/// Any job is if the code is 74 (a full disk) and it has been restarted fewer than five times.
std::string sbatch_file(const JobFile& job);

/// A headless Service and an Indexed Job as YAML. A pod that was evicted or exited with 75 starts again. Exit code 2
/// (refused settings) ends the job. After any other failure, a full disk (74) included, a pod starts again a few times.
/// Errors    UsageError naming the setting: no image or volume, or an out_dir outside the volume
std::string k8s_file(const JobFile& job);

/// Open MPI's hostfile. Its first line is a comment: the mpirun command that uses the file, and that gives ranks the
/// time to stop and save.
std::string host_file(const JobFile& job);

}  // namespace trireme::launch
