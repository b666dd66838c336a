// The next multiple of a number.
#pragma once

#include <cstdint>

namespace trireme::base {

/// The least multiple of `multiple` that is not below n; multiple > 0, and n + multiple - 1 fits.
constexpr int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace trireme::base
