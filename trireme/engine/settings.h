// Settings of the engine: its device, checks of its memory, a measured timeline.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "trireme/config/declaration.h"

namespace trireme::engine {

enum class Accelerator { cpu, cuda };
std::span<const config::Choice<Accelerator>> choices_of(Accelerator);

struct AcceleratorSettings {
  Accelerator accelerator = Accelerator::cpu;
  bool operator==(const AcceleratorSettings&) const = default;
};
config::Section section(AcceleratorSettings& settings);

struct EngineSettings {
  bool poison = false;
  bool cuda_graph = false;
  bool operator==(const EngineSettings&) const = default;
};
config::Section section(EngineSettings& settings);

struct ProfileSettings {
  bool measure = false;
  int64_t steps = 10;
  std::optional<double> price;
  std::optional<std::string> schedule;
  bool operator==(const ProfileSettings&) const = default;
};
config::Section section(ProfileSettings& settings);

}  // namespace trireme::engine
