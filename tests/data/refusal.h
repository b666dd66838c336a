// The text of a refusal, for tests of what users read.
#pragma once

#include <string>

#include "trireme/base/error.h"

namespace trireme::data {

/// The text of the UsageError that `action` throws, or "not refused".
template <typename F>
std::string refusal(F&& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "not refused";
}

}  // namespace trireme::data
