// Prints learning rates so that scripts can compare: each line of the standard input is the settings of a run, as on
// the command line; it becomes a line with the rate of each of its train.max_steps steps.
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/optim/lr_schedule.h"
#include "trireme/settings/derived.h"
#include "trireme/settings/parse.h"
#include "trireme/settings/validate.h"

int main() try {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::vector<std::string> arguments;
    for (std::string word; words >> word;) arguments.push_back(word);
    const trireme::Settings s = trireme::parse_settings(arguments).settings;
    trireme::validate(s, 1);
    const trireme::optim::LrSchedule schedule{.peak = trireme::scaled_lr(s),
                                              .min = trireme::lowest_lr(s),
                                              .warmup_steps = trireme::warmup_steps(s),
                                              .max_steps = *s.train.max_steps,
                                              .decay = s.train.lr_decay,
                                              .settings = s.lr_schedule};
    std::cout.precision(17);
    for (int64_t step = 1; step <= schedule.max_steps; ++step) std::cout << schedule.at(step) << ' ';
    std::cout << '\n';
  }
  return 0;
} catch (const trireme::Error& error) {
  std::cerr << error.what() << "\n";
  return 2;
}
