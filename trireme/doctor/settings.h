// The settings of `trireme doctor`.
#pragma once

#include <optional>
#include <string>

#include "trireme/config/declaration.h"

namespace trireme::doctor {

struct DoctorSettings {
  std::optional<std::string> json;
  bool operator==(const DoctorSettings&) const = default;
};
config::Section section(DoctorSettings& settings);

}  // namespace trireme::doctor
