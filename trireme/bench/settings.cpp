#include "trireme/bench/settings.h"

namespace trireme::bench {

config::Section section(BenchSettings& s) {
  return {
      .name = "bench",
      .title = "benchmarks",
      .command = "bench",
      .rows = {
          {"bench.warmup", &s.warmup, "steps before the timed ones", {.unit = "steps", .at_least = 0}},
          {"bench.steps", &s.steps, "steps that are timed", {.unit = "steps", .at_least = 1}},
          {"bench.json",
           &s.json,
           "file for the result as JSON (keys: docs/benchmarks.md)",
           {.absent = "none", .example = "result.json", .writes_file = true, .result_begins = "{"}},
          {"bench.quick", &s.quick,
           "measure very briefly, only to see that the benchmark works; the figures mean "
           "little"},
          {"bench.operations", &s.operations, "bench train also times every operation, for a table and its JSON"},
          {"bench.hardware",
           &s.hardware,
           "file that bench calibrate writes",
           {.absent = "auto",
            .when_absent = "~/.config/trireme/hardware.yaml, which predictions read",
            .example = "mine.yaml",
            .writes_file = true}},
          {"bench.threads",
           &s.threads,
           "threads that bench ops, gemm, generate and data compute with",
           {.unit = "threads", .at_least = 1, .at_most = 1024, .absent = "auto", .when_absent = "1", .example = "2"}},
          {"bench.ranks",
           &s.ranks,
           "numbers of ranks that bench scaling measures; the first is what the others are compared with",
           {.unit = "ranks", .at_least = 1, .absent = "auto", .when_absent = "1, 2 and 4", .example = "1,2,4"}},
          {"bench.picture",
           &s.picture,
           "file for the picture of bench scaling (SVG)",
           {.absent = "auto",
            .when_absent = "scaling.svg in out_dir",
            .example = "scaling.svg",
            .writes_file = true,
            .result_begins = "<"}},
      }};
}

}  // namespace trireme::bench
