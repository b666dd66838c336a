#include "trireme/train/pretrain.h"

#include "trireme/cli/start.h"
#include "trireme/config/validate.h"
#include "trireme/train/host_plan.h"

namespace trireme::cli {

int run_pretrain(Arguments arguments) {
  return start({.subcommand = "pretrain",
                .overlay = {.command = "pretrain", .section = "launch"},
                .plan = train::plan_host,
                .check =
                    [](const config::Settings& settings) {
                      config::validate_run_length(settings);
                      train::check_pretrain(settings);
                    },
                .run = train::pretrain,
                .uses_gpus = true,
                .owns_out_dir = true,
                .saves_when_stopped = true},
               arguments);
}

}  // namespace trireme::cli
