#include "trireme/launch/settings.h"

#include <fmt/format.h>

#include <string>

#include "trireme/config/problems.h"

namespace trireme::launch {

std::span<const config::Choice<Homogeneous>> choices_of(Homogeneous) {
  static const std::vector<config::Choice<Homogeneous>> kTable = {
      {Homogeneous::require, "require", {}}, {Homogeneous::warn, "warn", {}}, {Homogeneous::ignore, "ignore", {}}};
  return kTable;
}

std::span<const config::Choice<JobKind>> choices_of(JobKind) {
  static const std::vector<config::Choice<JobKind>> kTable = {
      {JobKind::sbatch, "sbatch", {}}, {JobKind::k8s, "k8s", {}}, {JobKind::hostfile, "hostfile", {}}};
  return kTable;
}

int64_t world_size(const RankSettings& settings) { return settings.devices.value_or(1) * settings.num_nodes; }

config::Section section(RankSettings& s) {
  return {.name = "",
          .title = "the whole run",
          .rows =
              {
                  {"devices",
                   &s.devices,
                   "ranks started on this machine",
                   {.unit = "ranks",
                    .at_least = 1,
                    .at_most = 100'000,
                    .absent = "auto",
                    .when_absent = "one for each GPU (accelerator cuda) or NUMA node; 1 with a mesh",
                    .example = "2"}},
                  {"num_nodes",
                   &s.num_nodes,
                   "machines that take part, each with `devices` ranks",
                   {.unit = "machines", .at_least = 1, .at_most = 100'000}},
              },
          .others = {
              {{"gpus", "num_gpus", "n_gpus", "ranks", "nproc", "np", "nproc_per_node", "num_processes"},
               "the number of ranks on this machine is devices"},
              {{"world_size"}, "the number of ranks on this machine is devices, the number of machines is num_nodes"},
          }};
}

namespace {
config::Rules null_means(std::string_view meaning, std::string_view example = {}) {
  return {.absent = "null", .when_absent = meaning, .example = example};
}
}  // namespace

config::Section section(LaunchSettings& s) {
  return {
      .name = "launch",
      .title = "starting ranks",
      .rows =
          {
              {"launch.threads_per_rank",
               &s.threads_per_rank,
               "threads a rank computes with",
               {.unit = "threads",
                .at_least = 1,
                .at_most = kMostThreads,
                .absent = "auto",
                .when_absent = "the machine's cores divided by its ranks",
                .example = "1"}},
              {"launch.pin", &s.pin, "tie each rank's threads to cores of their own"},
              {"launch.oversubscribe", &s.oversubscribe,
               "start ranks even if the machine has too few cores or too little memory for them (docs/launching.md "
               "says "
               "when that is so)"},
              {"launch.homogeneous", &s.homogeneous,
               "ranks on different processors, GPUs, drivers or versions: refuse to start, say so, or do not look"},
              {"launch.node_rank",
               &s.node_rank,
               "number of this machine, 0 to num_nodes - 1; every machine starts the same command with its own number",
               {.at_least = 0,
                .absent = "auto",
                .when_absent = "the number from srun or Kubernetes; else it must be given",
                .example = "0"}},
              {"launch.master_addr", &s.master_addr,
               "address of machine 0 as the other machines reach it, where all ranks meet",
               null_means("srun's tasks meet by a file in out_dir; else it must be given where num_nodes is 2 or more",
                          "host-a")},
              {"launch.master_port",
               &s.master_port,
               "port there, the same on every machine",
               {.at_least = 1, .at_most = 65535}},
              {"launch.max_restarts",
               &s.max_restarts,
               "how often all ranks may start again after a failure, from the newest checkpoint; a failure that "
               "happens "
               "again at the same step ends the job",
               {.unit = "restarts", .at_least = 0, .at_most = 1e6}},
              {"launch.grace",
               &s.grace,
               "time from the request to stop (SIGTERM, SIGINT, SIGUSR1, SIGHUP, a notice) to the end of the run: a "
               "step that would take longer is abandoned, and the last complete step is saved",
               {.above = 0}},
              {"launch.notice_file", &s.notice_file,
               "path of a file; when it appears or changes on any machine, the run stops",
               null_means("none is looked for", "/run/preempted")},
              {"launch.notice_url", &s.notice_url,
               "an http address that announces preemption (a cloud's metadata service); one rank of each machine asks "
               "it",
               null_means("none is asked", "http://169.254.169.254/latest/meta-data/spot/instance-action")},
              {"launch.notice_interval",
               &s.notice_interval,
               "how often the file and the address are read",
               {.above = 0}},
              {"launch.hosts", &s.hosts,
               "machines to start by ssh, each NAME or NAME:RANKS; without RANKS each has devices",
               null_means("this machine, or those of launch.hostfile", "host-a:4,host-b:4")},
              {"launch.hostfile", &s.hostfile,
               "file of machines to start by ssh, one per line: NAME, or NAME slots=RANKS as in Open MPI's hostfiles",
               null_means("none", "hosts.txt")},
              {"launch.include", &s.include,
               "machines of the list to use, as DeepSpeed's launcher takes them: host-a@host-b:0,2 means all of "
               "host-a, "
               "and "
               "two ranks on slots (GPUs) 0 and 2 of host-b",
               null_means("all machines of the list", "host-a@host-b:0,2")},
              {"launch.exclude", &s.exclude, "machines or slots of the list to leave out, written as in launch.include",
               null_means("none", "host-c@host-b:1")},
              {"launch.print", &s.print, "print a job file for this command and start nothing",
               null_means("the command runs")},
              {"launch.image", &s.image, "container image that holds trireme, for launch.print k8s",
               null_means("it must be given for k8s", "registry.example/trireme:1")},
              {"launch.volume", &s.volume,
               "shared storage for launch.print k8s: CLAIM:/PATH, a PersistentVolumeClaim and where pods see it; "
               "out_dir "
               "lies in it",
               null_means("it must be given for k8s", "shared:/data")},
              {"launch.nnodes", &s.nnodes,
               "number of machines, MIN:MAX: the job starts, and restarts after a failure, on as many as come to "
               "launch.rdzv_endpoint; a single number is both MIN and MAX",
               null_means("num_nodes", "2:4")},
              {"launch.rdzv_endpoint", &s.rdzv_endpoint,
               "HOST:PORT where the machines' launchers meet and get their numbers; HOST is one of the machines, and "
               "every "
               "machine starts the same command",
               null_means("launch.node_rank says which machine this is", "host-a:29400")},
              {"launch.join_timeout",
               &s.join_timeout,
               "how long launchers wait at launch.rdzv_endpoint for enough machines, and how long ranks wait for each "
               "other at the start: rank 0 reads the data first",
               {.above = 0}},
              {"launch.last_call",
               &s.last_call,
               "once MIN of launch.nnodes machines have come, how long launchers wait for more, up to MAX",
               {.at_least = 0}},
              {"launch.token_file", &s.token_file,
               "file with the job's secret: at least 32 random characters (openssl rand -hex 32); you must own the "
               "file, "
               "and its mode must be 0600; ranks without the secret are refused",
               null_means("a new secret for each job; other machines find it in out_dir", "job.token")},
              {"launch.log_ranks",
               &s.log_ranks,
               "ranks besides 0 whose output is shown, each line with its rank before it; the output of all ranks is "
               "in "
               "out_dir/logs",
               {.at_least = 0, .absent = "none", .when_absent = "rank 0 alone", .example = "1,3"}},
              {"launch.log_link",
               &s.log_link,
               "a link in out_dir with this name leads to the log of rank 0; a single rank then has a log, too",
               {.absent = "none", .when_absent = "logs are in out_dir/logs only", .example = "train.log"}},
          },
      .check = [&s](config::Problems& problems) {
        const std::string name = s.log_link.value_or("train.log");
        if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
          problems.add(fmt::format("launch.log_link {} is no name of a file in out_dir", name), {},
                       "give a name without a folder, for instance train.log");
      }};
}

}  // namespace trireme::launch
