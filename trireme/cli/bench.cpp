#include "trireme/train/bench.h"

#include "trireme/base/error.h"
#include "trireme/cli/start.h"
#include "trireme/config/validate.h"
#include "trireme/train/setup.h"

namespace trireme::cli {

int run_bench(Arguments arguments) {
  if (arguments.empty() || arguments[0] != "train")
    throw UsageError(
        "error: what shall be measured? trireme bench train MODEL [settings], for instance\n"
        "  trireme bench train llama-32m --devices 2 --train.micro_batch_size 2");
  return start(
      {.subcommand = "bench train",
       .overlay = {.values = {{"out_dir", "out/bench"}}, .command = "bench train", .section = "bench"},
       .complete =
           [](config::ParsedSettings& parsed) {
                      // One micro-batch a rank, unless told otherwise.
             if (!parsed.given("train.global_batch_size"))
               parsed.settings.train.global_batch_size =
                   parsed.settings.train.micro_batch_size * config::world_size(parsed.settings);
           },
       .check =
           [](const config::Settings& settings) { train::sequence_length(settings, train::resolve_model(settings)); },
       .run = train::bench_train},
      arguments.subspan(1));
}

}  // namespace trireme::cli
