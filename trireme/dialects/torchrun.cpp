// torchrun's words for the launch settings, on training commands: --nnodes 2 means --launch.nnodes 2. `trireme launch`
// has them as options of its own (cli/launch_words.cpp). Source: torch/distributed/run.py.
#include <fmt/format.h>

#include "trireme/base/units.h"
#include "trireme/dialects/dialect.h"
#include "trireme/dialects/reading.h"

namespace trireme::dialects {
namespace {
constexpr std::string_view kLocalRank = "the launcher's variables say it";

// DeepSpeed's launcher and older ones of PyTorch tell it to each rank. -1 is transformers' default.
void read_local_rank(Reading& reading, const config::Given& entry) {
  if (reading.was_launched() || base::parse_number(entry.text).value_or(0) <= 0)
    return reading.ignore(entry, kLocalRank);
  reading.refuse(entry,
                 fmt::format("local_rank {} is for a rank that a launcher started, but RANK is not set", entry.text),
                 "leave it out and say devices, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each rank");
}
}  // namespace

const Dialect& torchrun() {
  using enum Takes;
  constexpr std::string_view kStore = "launchers have a store of their own";
  constexpr std::string_view kProcess = "ranks are programs, started without Python";
  static const Dialect kDialect{
      .name = "torchrun",
      .system = "torchrun",
      .about = "torchrun's options, on `trireme launch` and on training commands.",
      .marks = {},
      .words = Words::all,
      .rows = {
          {.key = "nnodes", .takes = text, .setting = "launch.nnodes"},
          {.key = "rdzv_endpoint", .takes = text, .setting = "launch.rdzv_endpoint"},
          {.key = "max_restarts", .takes = count, .setting = "launch.max_restarts"},
          {.key = "node_rank", .takes = count, .setting = "launch.node_rank"},
          {.key = "master_addr", .takes = text, .setting = "launch.master_addr"},
          {.key = "master_port", .takes = count, .setting = "launch.master_port"},
          {.key = "nproc_per_node", .takes = text, .setting = "devices", .words = {{"gpu", "auto"}, {"cpu", "auto"}}},
          {.key = "rdzv_backend", .takes = text, .ignored = kStore},
          {.key = "rdzv_id", .takes = text, .ignored = kStore},
          {.key = "rdzv_conf", .takes = text, .ignored = kStore},
          {.key = "standalone", .takes = flag, .ignored = "a command without launch.master_addr runs on one machine"},
          {.key = "monitor_interval", .takes = number, .ignored = "a launcher sees the end of a rank at once"},
          {.key = "start_method", .takes = text, .ignored = kProcess},
          {.key = "role", .takes = text, .ignored = "all ranks have one role"},
          {.key = "no_python", .takes = flag, .ignored = kProcess},
          {.key = "redirects", .takes = text, .ignored = "the output of all ranks is in out_dir/logs"},
          {.key = "tee", .takes = text, .ignored = "launch.log_ranks says whose output is shown"},
          {.key = "local_rank", .takes = number, .ignored = kLocalRank, .by = read_local_rank},
          {.key = "local_ranks_filter", .takes = text, .ignored = "launch.log_ranks says whose output is shown"},
      }};
  return kDialect;
}

}  // namespace trireme::dialects
