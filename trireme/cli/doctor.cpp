#include "trireme/doctor/doctor.h"

#include "trireme/base/error.h"
#include "trireme/cli/start.h"
#include "trireme/settings/validate.h"

namespace trireme::cli {

int run_doctor(Arguments arguments) {
  return start({.subcommand = "doctor",
                .overlay = {.values = {{"out_dir", "out/doctor"}, {"devices", "2"}, {"comm.timeout", "60s"}},
                            .command = "doctor",
                            .positional = "",
                            .section = "doctor"},
                .help = "trireme doctor: checks machines and ranks before a run, and says what to fix\n"
                        "  trireme doctor\n"
                        "  trireme doctor --devices 4 --out_dir out/mine\n"
                        "  srun -n 8 trireme doctor; mpirun -n 8 trireme doctor; --num_nodes as in trireme pretrain\n\n"
                        "Cores, memory, limits, names, interfaces, GPUs, versions, the disk of out_dir; then latency,\n"
                        "bandwidth and clocks of pairs of ranks, one pair after the other, and collectives beside\n"
                        "the rate of a copy. Exit code 1 if a line says FAIL. The figures are those of this moment,\n"
                        "so end other work first.\n\n",
                .help_groups = {"doctor"},
                .also_takes = "devices, num_nodes, accelerator, out_dir, comm.*, launch.*",
                .complete =
                    [](ParsedSettings& parsed) {
                      parsed.settings.train.global_batch_size =
                          parsed.settings.train.micro_batch_size * world_size(parsed.settings);
                    },
                .check =
                    [](const Settings& settings) {
                      if (settings.comm.backend == comm::Backend::mpi)
                        throw UsageError(
                            "error: the ranks of trireme doctor meet at a store, which comm.backend mpi has not; leave "
                            "comm.backend out");
                    },
                .run = doctor::run_doctor,
                .answer_code = doctor::kFoundFailing},
               arguments);
}

}  // namespace trireme::cli
