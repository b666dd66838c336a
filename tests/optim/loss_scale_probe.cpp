// Runs a loss scale over a script of overflows and prints its history, for loss_scales.py.
//
// loss_scale_probe torch|deepspeed INITIAL WINDOW HYSTERESIS CONSECUTIVE MINIMUM < SCRIPT
// SCRIPT has a character for each step: x where a gradient overflows, . otherwise. At | the state goes through a
// checkpoint, at / also to half the window, and at ^ to four times the minimum. Each line of the output is the scale of
// a step, and whether the step is skipped. It ends where the scale would fall below its minimum.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "trireme/optim/loss_scale.h"

int main(int, char** argv) {
  using trireme::model::ScaleRule;
  trireme::optim::LossScaleOptions options;
  options.rule = std::string(argv[1]) == "torch" ? ScaleRule::torch : ScaleRule::deepspeed;
  options.initial = std::atof(argv[2]);
  options.window = std::atol(argv[3]);
  options.hysteresis = std::atol(argv[4]);
  options.consecutive_hysteresis = std::string(argv[5]) == "1";
  options.minimum = std::atof(argv[6]);
  trireme::optim::LossScale scale(options);
  for (int c = std::getchar(); c != EOF && std::strchr("x.|/^", c) != nullptr; c = std::getchar()) {
    if (c != 'x' && c != '.') {
      if (c == '/') options.window /= 2;
      if (c == '^') options.minimum *= 4;
      trireme::optim::LossScale resumed(options);
      resumed.restore(scale.state());
      scale = resumed;
      continue;
    }
    std::printf("%.17g %d\n", scale.scale(), c == 'x');
    scale.update(c == 'x');
    if (scale.exhausted()) return 0;
  }
  std::printf("%ld skipped\n", static_cast<long>(scale.skipped()));
  return 0;
}
