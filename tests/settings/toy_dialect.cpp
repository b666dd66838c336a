// The dialect that docs/adding-a-dialect.md adds: another system calls toy.buffer shuffling.size, and writes it as
// text.
#include <string_view>

#include "trireme/config/given.h"

namespace trireme::dialects {

void toy(config::Given& given) {
  constexpr std::string_view kUnit = " samples";
  if (given.key == "shuffling") given.key = "toy";
  if (given.key == "toy.size" || given.key == "shuffling.size") given.key = "toy.buffer";
  if (given.key == "toy.buffer" && given.text.ends_with(kUnit)) given.text.resize(given.text.size() - kUnit.size());
}

}  // namespace trireme::dialects
