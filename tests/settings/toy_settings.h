// The section that docs/adding-a-setting.md adds: how a toy shuffles.
#pragma once

#include <cstdint>
#include <span>

#include "trireme/config/declaration.h"

namespace trireme::toy {

/// In which order samples come.
enum class Shuffle {
  none,    ///< as they lie
  buffer,  ///< drawn from the next few
};
std::span<const config::Choice<Shuffle>> choices_of(Shuffle);

struct ToySettings {
  Shuffle shuffle = Shuffle::none;
  int64_t buffer = 0;  ///< samples that are drawn from
  bool operator==(const ToySettings&) const = default;
};
config::Section section(ToySettings& settings);

}  // namespace trireme::toy
