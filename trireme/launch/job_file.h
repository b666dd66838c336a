// Job files for schedulers, made from a command as it was typed: what somebody would otherwise copy from an older job
// and mend until it works. Pure functions, which refuse words with control characters (UsageError); a job of each kind
// stops in time, is queued again when it was stopped (exit code 75) and goes on from its newest checkpoint.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace trireme::launch {

struct JobFile {
  std::string program;                 ///< path of trireme
  std::vector<std::string> arguments;  ///< its subcommand and all that follows, without what asks for the file
  std::string folder;                  ///< where the command was typed: what its relative paths mean
  std::string out_dir;
  int num_nodes = 1, ranks_per_node = 1, threads_per_rank = 1;
  std::chrono::seconds grace{30};  ///< that the run needs to stop and save
  int master_port = 29500;         ///< k8s
  std::string image, claim, mount; ///< k8s: container, PersistentVolumeClaim, and where pods see it
  std::vector<std::string> hosts;  ///< hostfile
};

/// A batch script: one task a machine, which starts that machine's ranks. Slurm's signal comes early enough for the
/// grace time; a run that stopped with 75 puts its job back into the queue, and so does one that ended with 74, a full
/// disk, up to five times.
std::string sbatch_file(const JobFile& job);

/// A headless Service and an Indexed Job as YAML. A pod that was evicted, or stopped with 75, starts again; one that
/// refused its settings (2) ends the job; one that failed otherwise, with a full disk (74) too, starts again a few
/// times.
/// Errors    UsageError naming the setting: no image or volume, an out_dir outside of it
std::string k8s_file(const JobFile& job);

/// Open MPI's list of hosts, with the command that takes it as a remark.
std::string host_file(const JobFile& job);

/// `word` as a POSIX shell reads it back.
std::string shell_quoted(const std::string& word);

}  // namespace trireme::launch
