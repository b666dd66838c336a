// The dialect that docs/adding-a-dialect.md adds: another system calls toy.buffer shuffling.size, and writes it as
// text. It has a thread for shuffling, which Trireme does not need, and shuffles over machines, which Trireme cannot.
#include <string_view>

#include "trireme/dialects/reading.h"

namespace trireme::dialects {
namespace {

void size(Reading& reading, const config::Given& entry) {
  constexpr std::string_view kUnit = " samples";
  if (!entry.text.ends_with(kUnit))
    return reading.refuse(entry, "shuffling.size is a number of samples", "write it like this: 8 samples");
  reading.set("toy.buffer", entry.text.substr(0, entry.text.size() - kUnit.size()), entry);
}

void finish(Reading& reading) { reading.suggest("toy.shuffle", "buffer"); }

}  // namespace

const Dialect& toy() {
  static const Dialect kDialect{
      .name = "toy",
      .system = "Shuffler",
      .about = "Shuffler's YAML.",
      .marks = {"shuffling"},
      .words = Words::all,
      .rows = {{.key = "shuffling.size", .takes = Takes::text, .becomes = "toy.buffer", .by = size},
               {.key = "shuffling.order",
                .takes = Takes::text,
                .setting = "toy.shuffle",
                .words = {{"file", "none"}, {"random", "buffer"}}},
               {.key = "shuffling.thread", .takes = Takes::flag, .ignored = "samples are drawn as they are needed"},
               {.key = "shuffling.machines", .takes = Takes::count, .open = "a buffer over machines; leave it out"}},
      .finish = finish};
  return kDialect;
}

}  // namespace trireme::dialects
