#include "trireme/train/pretrain.h"

#include "trireme/cli/start.h"
#include "trireme/settings/validate.h"
#include "trireme/train/setup.h"

namespace trireme::cli {

int run_pretrain(Arguments arguments) {
  return start({.subcommand = "pretrain",
                .overlay = {.command = "pretrain", .section = "launch"},
                .plan = train::plan_host,
                .check =
                    [](const Settings& settings) {
                      validate_run_length(settings);
                      train::check_pretrain(settings);
                    },
                .run = train::pretrain,
                .uses_gpus = true,
                .owns_out_dir = true,
                .saves_when_stopped = true},
               arguments);
}

}  // namespace trireme::cli
