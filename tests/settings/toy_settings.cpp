#include "toy_settings.h"

#include <vector>

#include "trireme/config/problems.h"

namespace trireme::toy {

std::span<const config::Choice<Shuffle>> choices_of(Shuffle) {
  static const std::vector<config::Choice<Shuffle>> kTable = {{Shuffle::none, "none", {"false"}},
                                                              {Shuffle::buffer, "buffer", {"reservoir"}}};
  return kTable;
}

config::Section section(ToySettings& s) {
  return {
      .name = "toy",
      .title = "the order of samples",
      .resumed = config::Resumed::learned,
      .rows = {{"toy.shuffle", &s.shuffle, "samples come as they lie (none), or are drawn from the next few (buffer)"},
               {"toy.buffer",
                &s.buffer,
                "how many those are",
                {.unit = "samples", .at_least = 0, .resumed = config::Resumed::yes}}},
      .others = {{{"shuffle_buffer_size"}, "samples that are drawn from are toy.buffer"}},
      .check = [&s](config::Problems& problems) {
        if (s.shuffle == Shuffle::buffer && s.buffer == 0)
          problems.add("there are no samples to draw from", {}, "toy.shuffle buffer needs toy.buffer above 0");
      }};
}

}  // namespace trireme::toy
