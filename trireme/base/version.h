// The version of Trireme; CMakeLists.txt reads it from this line.
#pragma once

namespace trireme::base {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace trireme::base
