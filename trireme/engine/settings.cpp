#include "trireme/engine/settings.h"

namespace trireme::engine {

std::span<const config::Choice<Accelerator>> choices_of(Accelerator) {
  static const std::vector<config::Choice<Accelerator>> kTable = {{Accelerator::cpu, "cpu", {}},
                                                                  {Accelerator::cuda, "cuda", {"gpu"}}};
  return kTable;
}

config::Section section(AcceleratorSettings& s) {
  return {.name = "",
          .title = "the whole run",
          .rows = {{"accelerator", &s.accelerator,
                    "what ranks compute on: cpu, or cuda with one NVIDIA GPU per rank; only commands that train take "
                    "cuda"}},
          .others = {{{"gpu"}, "GPUs are chosen with accelerator cuda; the number of ranks is devices"},
                     {{"device"}, "the device is chosen with accelerator cpu or cuda; the number of ranks is devices"},
                     {{"use_cpu", "no_cuda"}, "the CPU is chosen with accelerator cpu"}}};
}

config::Section section(EngineSettings& s) {
  return {.name = "engine",
          .title = "checks for debugging, launches on GPUs",
          .rows = {{"engine.poison", &s.poison,
                    "fill every value with NaN at the end of its life and put guard bytes between values; slow"},
                   {"engine.cuda_graph", &s.cuda_graph,
                    "launch the passes of a step as CUDA graphs: less work for the host, some scratch memory twice; "
                    "steps that differ in the number of learned tokens run without"}},
          .others = {{{"compiler", "compile", "torch_compile", "jit"},
                      "nothing is compiled at run time here; leave it out",
                      true}}};
}

config::Section section(ProfileSettings& s) {
  return {
      .name = "profile",
      .title = "measuring",
      .own_leaf = "measure",
      .rows = {
          {"profile", &s.measure,
           "measure profile.steps steps on every rank, after three that warm up: what takes time, and what to change"},
          {"profile.steps", &s.steps, "steps that are measured", {.unit = "steps", .at_least = 1}},
          {"profile.price",
           &s.price,
           "of a rank and hour, for the cost of a million tokens",
           {.above = 0, .absent = "null", .when_absent = "costs are not told", .example = "2.5"}},
          {"profile.schedule", &s.schedule,
           "file for the measured timeline of the third step: a picture for .svg, text for .txt, else a Chrome trace",
           config::Rules{.absent = "null",
                         .when_absent = "not measured",
                         .example = "schedule.svg",
                         .writes_file = true,
                         .result_begins = "{<"}}}};
}

}  // namespace trireme::engine
