// The files of configs/hardware, which are in the program (CMakeLists.txt writes the table).
#pragma once

#include <span>

namespace trireme::costs {

struct HardwareFile {
  const char* name;  ///< "h100"
  const char* text;
};

std::span<const HardwareFile> hardware_files();

}  // namespace trireme::costs
